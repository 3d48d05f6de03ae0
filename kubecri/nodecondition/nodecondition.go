// Package nodecondition writes Kubeslot's conditions into this node's status. A condition is
// written when it changes, and again when the Node object lost it; there is no heartbeat,
// so an idle node costs no writes.
package nodecondition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Prefix begins the types of all conditions that kubecri writes: no others may be written,
// see deploy/policies/kubecri.yaml.
const Prefix = "kubeslot.io/"

// Condition is what the node is to say. Its type begins with Prefix. Status True means
// trouble.
type Condition struct {
	Type            string
	Status          corev1.ConditionStatus
	Reason, Message string
}

// maxMessage bounds a condition's message, in bytes.
const maxMessage = 1024

// Config configures a Reporter; Clock may be nil.
type Config struct {
	Node   string
	Client kubernetes.Interface
	// Nodes is this node alone.
	Nodes coreinformers.NodeInformer
	Clock clock.PassiveClock
}

// Reporter writes the conditions. Safe for concurrent use.
type Reporter struct {
	config  Config
	changed chan struct{}

	mu     sync.Mutex
	wanted map[string]Condition

	// written is what was written last, when the informer showed the node at version:
	// until it shows another, the node says that. Run's alone.
	written []Condition
	version string
}

// New makes a Reporter, which Run starts.
func New(config Config) (*Reporter, error) {
	if config.Node == "" || config.Client == nil || config.Nodes == nil {
		return nil, errors.New("nodecondition: node, client and informer are required")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	r := &Reporter{config: config, changed: make(chan struct{}, 1), wanted: map[string]Condition{}}
	_, err := config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.wake() }, UpdateFunc: func(_, _ any) { r.wake() }})
	return r, err
}

// Set has the node say the condition from now on. It returns at once.
func (r *Reporter) Set(c Condition) {
	if len(c.Message) > maxMessage {
		c.Message = c.Message[:maxMessage-3] + "..."
	}
	r.mu.Lock()
	changed := r.wanted[c.Type] != c
	r.wanted[c.Type] = c
	r.mu.Unlock()
	if changed {
		r.wake()
	}
}

func (r *Reporter) wake() {
	select {
	case r.changed <- struct{}{}:
	default: // it is to be looked at already
	}
}

// Run writes until ctx is done.
func (r *Reporter) Run(ctx context.Context) {
	if !cache.WaitFor(ctx, "", r.config.Nodes.Informer().HasSyncedChecker()) {
		return
	}
	backoff := retries()
	for {
		var retry <-chan time.Time
		if err := r.write(ctx); err != nil && ctx.Err() == nil {
			after := backoff.Step()
			klog.FromContext(ctx).Error(err, "Cannot change the node's conditions, trying again", "after", after)
			retry = time.After(after)
		} else {
			backoff = retries()
		}
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-retry:
		}
	}
}

func retries() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 7, Cap: time.Minute}
}

func (r *Reporter) write(ctx context.Context) error {
	node, err := r.config.Nodes.Lister().Get(r.config.Node)
	if apierrors.IsNotFound(err) {
		return nil // its event will come
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", r.config.Node, err)
	}
	r.mu.Lock()
	wanted := slices.SortedFunc(maps.Values(r.wanted), func(a, b Condition) int {
		if a.Type < b.Type {
			return -1
		}
		return 1
	})
	r.mu.Unlock()
	if node.ResourceVersion == r.version && slices.Equal(wanted, r.written) {
		return nil
	}
	news := plan(node.Status.Conditions, wanted, metav1.NewTime(r.config.Clock.Now()))
	if len(news) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": news}})
	if err != nil {
		return err
	}
	// Strategic: conditions are merged by their type, and the kubelet's stay.
	_, err = r.config.Client.CoreV1().Nodes().Patch(ctx, r.config.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubecri"}, "status")
	if err != nil {
		return fmt.Errorf("patch the conditions of node %s: %w", r.config.Node, err)
	}
	r.written, r.version = wanted, node.ResourceVersion
	return nil
}

// plan returns those of the wanted conditions that the node does not have so.
func plan(has []corev1.NodeCondition, wanted []Condition, now metav1.Time) []corev1.NodeCondition {
	var news []corev1.NodeCondition
	for _, w := range wanted {
		since := now
		i := slices.IndexFunc(has, func(c corev1.NodeCondition) bool { return string(c.Type) == w.Type })
		if i >= 0 {
			is := has[i]
			if is.Status == w.Status && is.Reason == w.Reason && is.Message == w.Message {
				continue
			}
			if is.Status == w.Status {
				since = is.LastTransitionTime
			}
		}
		news = append(news, corev1.NodeCondition{Type: corev1.NodeConditionType(w.Type), Status: w.Status, Reason: w.Reason, Message: w.Message,
			LastHeartbeatTime: now, LastTransitionTime: since})
	}
	return news
}
