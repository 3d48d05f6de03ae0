package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

//go:embed page
var embedded embed.FS

// contentTypes are those of the page's files: what the machine says of them may be wrong.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// heartbeat is how often a page hears that it is still connected.
const heartbeat = 10 * time.Second

// EventReader reads the events of a pod, with the user's rights.
type EventReader func(ctx context.Context, namespace, pod string) ([]corev1.Event, error)

// viewer is a Hub, and what is asked of the API server only when somebody looks.
type viewer struct {
	*Hub
	about  About
	events EventReader
	// opened is told of pages that are opened, 1, and closed, -1.
	opened func(by int)
	// done is closed when the user may not see it any longer.
	done <-chan struct{}
}

// routes serves the page and its data. viewerOf says whose data a request gets; when it
// returns nil it has answered the request.
func routes(viewerOf func(http.ResponseWriter, *http.Request) *viewer) *http.ServeMux {
	mux := http.NewServeMux()
	with := func(serve func(*viewer, http.ResponseWriter, *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if v := viewerOf(w, r); v != nil {
				if strings.HasPrefix(r.URL.Path, "/api/") {
					v.Ready(r.Context())
				}
				serve(v, w, r)
			}
		}
	}
	mux.Handle("GET /{$}", with(func(_ *viewer, w http.ResponseWriter, r *http.Request) { serveFile(w, r, "index.html") }))
	mux.HandleFunc("GET /page/{file}", func(w http.ResponseWriter, r *http.Request) { serveFile(w, r, r.PathValue("file")) })
	mux.Handle("GET /api/alive", with(func(_ *viewer, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	mux.Handle("GET /api/updates", with((*viewer).serveUpdates))
	mux.Handle("GET /api/pods/{namespace}/{name}", with((*viewer).servePod))
	mux.Handle("GET /api/nodes/{name}", with((*viewer).serveNode))
	mux.Handle("GET /api/devices/{name}/spans", with((*viewer).serveSpans))
	return mux
}

// serveFile serves a file of the page.
func serveFile(w http.ResponseWriter, r *http.Request, name string) {
	content, err := fs.ReadFile(embedded, path.Join("page", path.Base(name)))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(content)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	w.Header().Set("Cache-Control", "no-cache") // ask whether it has changed
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// serveUpdates sends updates as server-sent events for as long as the page is open.
func (v *viewer) serveUpdates(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies: send at once
	flush := http.NewResponseController(w)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	send := func(format string, args ...any) bool {
		// A page that does not read is given up.
		_ = flush.SetWriteDeadline(time.Now().Add(3 * heartbeat))
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && flush.Flush() == nil
	}
	if !send("retry: 2000\n\n") {
		return
	}
	if v.opened != nil {
		v.opened(1)
		defer v.opened(-1)
	}
	about, err := json.Marshal(v.about)
	if err != nil || !send("event: about\ndata: %s\n\n", about) {
		return
	}
	var seq uint64
	for {
		select {
		case <-v.done: // before an update that came meanwhile
			return
		default:
		}
		updates, last, next, err := v.After(seq)
		if err != nil {
			klog.FromContext(r.Context()).Error(err, "Cannot serve the page's updates")
			return
		}
		for _, update := range updates {
			if !send("data: %s\n\n", update) {
				return
			}
		}
		seq = last
		select {
		case <-r.Context().Done():
			return
		case <-v.done:
			return
		case <-next:
		case <-beat.C:
			if !send("event: alive\ndata: %d\n\n", v.clock.Now().UnixMilli()) {
				return
			}
		}
	}
}

func (v *viewer) servePod(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	// What events say is an addition: without the right to read them there are none.
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if !v.HasPod(namespace, name) {
		missing(w, fmt.Sprintf("there is no pod %s in namespace %s that you can see", name, namespace))
		return
	}
	events, err := v.events(ctx, namespace, name)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read the events of a pod", "pod", klog.KRef(namespace, name), "err", err)
	}
	pod, found := v.Pod(namespace, name, events)
	shown := shownPod{Pod: pod}
	for _, wait := range pod.Waits {
		held := len(wait.Holders)
		wait.Holders = firstOf(wait.Holders)
		shown.Waits = append(shown.Waits, shownWait{wait, held})
	}
	answer(w, shown, found, fmt.Sprintf("pod %s in namespace %s is gone", name, namespace))
}

func (v *viewer) serveNode(w http.ResponseWriter, r *http.Request) {
	node, found := v.Node(r.PathValue("name"))
	shown := shownNode{node, len(node.Instances), len(node.Slots)}
	shown.Instances, shown.Slots = firstOf(node.Instances), firstOf(node.Slots)
	answer(w, shown, found, "there is no node "+r.PathValue("name")+" that you can see")
}

// listed is how much of a list the page shows, which may have tens of thousands: it is sent no more.
const listed = 60

func firstOf[T any](all []T) []T { return all[:min(len(all), listed)] }

// shownPod is a pod as the page shows it.
type shownPod struct {
	view.Pod
	Waits []shownWait `json:"waits,omitempty"`
}

// shownWait has the first of its holders, and how many there are.
type shownWait struct {
	view.Wait
	Held int `json:"held,omitempty"`
}

// shownNode has the first of its Instances and slots, and how many there are.
type shownNode struct {
	view.Node
	Reaches int `json:"reaches"`
	Has     int `json:"has"`
}

func (v *viewer) serveSpans(w http.ResponseWriter, r *http.Request) {
	spans, found := v.Spans(r.PathValue("name"))
	answer(w, spans, found, "there is no Instance "+r.PathValue("name")+" that you can see")
}

// answer writes the value as JSON, or says that there is none.
func answer(w http.ResponseWriter, value any, found bool, otherwise string) {
	if !found {
		missing(w, otherwise)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the page has gone away
}

func missing(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}
