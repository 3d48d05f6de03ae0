package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// largestSessions is how much memory the sessions below may take together, in MiB.
const largestSessions = 600

// Twenty sessions of users who may list all of a cluster of 50,000 slots, 40,000 of them held by a
// pod each. It fails beyond the bound: make test-all runs it once.
func BenchmarkTwentySessions(b *testing.B) {
	api := httptest.NewServer(largeAPI(b))
	b.Cleanup(func() { // when the watches have ended
		api.CloseClientConnections()
		api.Close()
	})
	before := heap()
	for b.Loop() {
		o := Options{MaxSessions: DefaultSessions}
		sessions := NewSessions(b.Context(), &rest.Config{Host: api.URL}, o, clock.RealClock{})
		handler := sessions.Handler()
		for i := range DefaultSessions {
			r := httptest.NewRequest(http.MethodGet, "/api/nodes/node-001", nil)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i)
			r.Header.Set("Authorization", fmt.Sprintf("Bearer user-%d", i))
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
				b.Fatalf("session %d is answered %d %s", i, w.Code, w.Body)
			}
		}
		for _, one := range sessions.all { // as a page that is opened
			if _, _, _, err := one.viewer.After(0); err != nil {
				b.Fatal(err)
			}
		}
		together := float64(heap()-before) / (1 << 20)
		b.ReportMetric(together, "MiB-of-all-sessions")
		if together > largestSessions {
			b.Errorf("%d sessions take %.0f MiB, want %d at most", DefaultSessions, together, largestSessions)
		}
		runtime.KeepAlive(sessions)
	}
}

// heap is how many bytes are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers have freed
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// largeAPI is an API server of a large cluster, whose users are their tokens and may list all. Its
// objects are in files, apart from the memory that is measured.
func largeAPI(b *testing.B) http.Handler {
	o := large(b, 5000, 10, time.Now()).Objects()
	for i := range o.Pods {
		lifelike(&o.Pods[i])
	}
	dir := b.TempDir()
	write := func(kind, of, version string, items any, one any) {
		for name, items := range map[string]any{of: items, of + "-first": one} {
			text, err := json.Marshal(map[string]any{"kind": kind + "List", "apiVersion": version,
				"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
			if err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	write("Configuration", "configurations", "akri.sh/v0", o.Configurations, o.Configurations[:1])
	write("Instance", "instances", "akri.sh/v0", o.Instances, o.Instances[:1])
	write("DeviceSlice", "deviceslices", "kubeslot.io/v1alpha1", o.Slices, o.Slices[:1])
	write("SlotClaim", "slotclaims", "kubeslot.io/v1alpha1", o.Claims, o.Claims[:1])
	write("Pod", "pods", "v1", o.Pods, o.Pods[:1])
	write("Node", "nodes", "v1", o.Nodes, o.Nodes[:1])
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		kind, query := path.Base(r.URL.Path), r.URL.Query()
		switch {
		case kind == "selfsubjectreviews":
			user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1",`+
				`"status":{"userInfo":{"username":%q}}}`, user)
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case query.Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case query.Get("limit") == "1":
			http.ServeFile(w, r, filepath.Join(dir, kind+"-first"))
		default:
			http.ServeFile(w, r, filepath.Join(dir, kind))
		}
	})
}

// lifelike adds to a pod what those of clusters have and a cache keeps.
func lifelike(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "reader", "pod-template-hash": "7d4b9c6f58", "team": "plant"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "reader-7d4b9c6f58",
		UID: "3f0f8a1c", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(300))})
	}
	p.Spec.Containers[0].Image = "registry.example/plant/reader:v1.2.3"
	at := metav1.NewTime(time.Now().Add(-2 * time.Hour))
	for _, kind := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready",
		"ContainersReady"} {
		ready := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at}
		p.Status.Conditions = append(p.Status.Conditions, ready)
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		s.Ready, s.Started, s.Image = true, ptr.To(true), p.Spec.Containers[0].Image
		s.ImageID = "registry.example/plant/reader@sha256:" + strings.Repeat("e3b0c442", 8)
		s.ContainerID = "containerd://" + strings.Repeat("e3b0c442", 8)
	}
	p.Status.HostIP, p.Status.PodIP, p.Status.StartTime = "192.0.2.1", "10.0.0.1", &at
	p.Status.HostIPs, p.Status.PodIPs = []corev1.HostIP{{IP: "192.0.2.1"}}, []corev1.PodIP{{IP: "10.0.0.1"}}
}
