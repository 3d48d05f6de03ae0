package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// askAgain is how old an answer whether a node is selected must be for the next question, which
	// a slice of the node is reason for. It bounds what a node that writes all the time costs.
	askAgain = time.Minute
	// askTimeout bounds one question, and askRetry is until the next after a failure.
	askTimeout, askRetry = 10 * time.Second, 5 * time.Second
)

// reporters says which nodes spec.discovery of one Configuration selects, of those that
// report its devices: only their reports are believed. These are few, and each is read by
// its name when it reports. Where this kubecri may not read other Nodes, as with the
// kubelet's identity, all are believed. Safe for concurrent use.
type reporters struct {
	node     string // this one, which is selected
	selector labels.Selector
	get      func(ctx context.Context, node string) (*corev1.Node, error)
	changed  func(node string) // called with a node of which the answer is another than before

	mu      sync.Mutex
	answers map[string]answer
	waiting map[string]bool // nodes that are to be asked for
	wake    wake.Signal
}

// answer is whether a node is selected, and when it was found out.
type answer struct {
	selected bool
	at       time.Time
}

func (a *Agent) newReporters(c *v0.Configuration, changed func(node string)) *reporters {
	return &reporters{node: a.config.NodeName, selector: labels.SelectorFromSet(c.Spec.Discovery.NodeSelector),
		get: func(ctx context.Context, node string) (*corev1.Node, error) {
			return a.config.KubeClient.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		},
		changed: changed, answers: map[string]answer{}, waiting: map[string]bool{}, wake: wake.New()}
}

// selected reports whether the node is known to be selected.
func (r *reporters) selected(node string) bool {
	if node == r.node || r.selector.Empty() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers[node].selected
}

// ask has it found out whether the node is selected: a while later if that was done just now.
func (r *reporters) ask(node string) {
	if node == r.node || r.selector.Empty() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[node] = true
	r.wake.Send()
}

// run asks until ctx ends.
func (r *reporters) run(ctx context.Context) {
	for ctx.Err() == nil {
		var retry <-chan time.Time
		if !r.askAll(ctx) {
			retry = time.After(askRetry)
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-retry:
		}
	}
}

// askAll asks for each node that waits; done is false if one still does.
func (r *reporters) askAll(ctx context.Context) (done bool) {
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = map[string]bool{}
	r.mu.Unlock()
	var again []string
	for node := range waiting {
		before := r.answers[node] // nobody else writes them
		if time.Since(before.at) < askAgain {
			again = append(again, node)
			continue
		}
		selected, err := r.look(ctx, node)
		if err != nil {
			again = append(again, node)
			klog.FromContext(ctx).V(2).Info("Cannot find out whether a node is selected that reports devices, asking again", "node", node, "reason", err)
			continue
		}
		r.mu.Lock()
		r.answers[node] = answer{selected, time.Now()}
		r.mu.Unlock()
		if !selected {
			klog.FromContext(ctx).Info("Left out the devices that a node reports: spec.discovery.nodeSelector does not select it", "node", node)
		}
		if before.selected != selected {
			r.changed(node)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, node := range again {
		r.waiting[node] = true
	}
	return len(again) == 0
}

// look reads the node's labels.
func (r *reporters) look(ctx context.Context, name string) (selected bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := r.get(ctx, name)
	switch {
	case err == nil:
		return r.selector.Matches(labels.Set(node.Labels)), nil
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return true, nil
	}
	return false, fmt.Errorf("read the labels of node %s: %w", name, err)
}
