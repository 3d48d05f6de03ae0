package nodewriter

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/test/await"
)

// rig is a Writer with parts that each want an annotation of node a.
type rig struct {
	*Writer
	client *fake.Clientset
	mu     sync.Mutex
	wants  map[string]string
}

// countVersions has the client count the versions of node a, which begins with 1, as an API server does: a cache that
// is behind is known to be.
func countVersions(client *fake.Clientset) {
	version := 1
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, obj, err := clienttesting.ObjectReaction(client.Tracker())(action)
		if node, ok := obj.(*corev1.Node); ok {
			version++
			node.ResourceVersion = strconv.Itoa(version)
			err = client.Tracker().Update(action.GetResource(), node, "")
		}
		return handled, obj, err
	})
}

func newRig(t *testing.T, client *fake.Clientset) *rig {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	w, err := New(Config{Node: "a", Client: client, Nodes: factory.Core().V1().Nodes()})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Writer: w, client: client, wants: map[string]string{}}
	for _, key := range []string{"first", "second", "third"} {
		w.Add(key, func(_ context.Context, node *corev1.Node) (p Patch, _ time.Duration, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if want, wanted := r.wants[key]; wanted && node.Annotations[key] != want {
				p.Metadata.Annotations = map[string]*string{key: ptr.To(want)}
			}
			return p, 0, nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; factory.Shutdown() })
	return r
}

func (r *rig) want(wants map[string]string) {
	r.mu.Lock()
	maps.Copy(r.wants, wants)
	r.mu.Unlock()
	r.Wake()
}

func (r *rig) patches() (all []string) {
	for _, action := range r.client.Actions() {
		if p, ok := action.(clienttesting.PatchAction); ok {
			all = append(all, string(p.GetPatch()))
		}
	}
	return all
}

func (r *rig) await(t *testing.T, what string, is func(*corev1.Node) bool) {
	t.Helper()
	await.That(t, what, func() (bool, string) {
		node, err := r.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		return err == nil && is(node), fmt.Sprintf("%v; patches %q", err, r.patches())
	})
}

func says(want map[string]string) func(*corev1.Node) bool {
	return func(node *corev1.Node) bool { return maps.Equal(node.Annotations, want) }
}

// What all parts want is in one patch.
func TestOnePatch(t *testing.T) {
	client := fake.NewClientset()
	countVersions(client)
	r := newRig(t, client)
	wants := map[string]string{"first": "1", "second": "2", "third": "3"}
	r.want(wants)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	if err := client.Tracker().Add(node); err != nil { // now that all is wanted
		t.Fatal(err)
	}
	r.await(t, "all annotations", says(wants))
	if patches := r.patches(); len(patches) != 1 {
		t.Errorf("patches %q, want one", patches)
	}
}

// What the API server refuses of one part, such as by a policy, keeps it from no other.
func TestRefusedPart(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !strings.Contains(string(action.(clienttesting.PatchAction).GetPatch()), "second") {
			return false, nil, nil
		}
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "a", nil)
	})
	r := newRig(t, client)
	r.want(map[string]string{"first": "1", "second": "2", "third": "3"})
	r.await(t, "the parts that are not refused", says(map[string]string{"first": "1", "third": "3"}))
}

// While the cache is behind, the node is what the last patch left: nothing is written twice.
func TestCacheIsBehind(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}})
	client.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true,
			watch.NewFake(), nil
	})
	countVersions(client)
	r := newRig(t, client)
	for _, wants := range []map[string]string{{"first": "1"}, {"first": "1", "second": "2"},
		{"first": "1", "second": "2", "third": "3"}} {
		r.want(wants)
		r.await(t, "the annotations", says(wants))
	}
	if patches := r.patches(); len(patches) != 3 || strings.Contains(patches[2], "first") {
		t.Errorf("patches %q, want three, each with its annotation alone", patches)
	}
}

// A removed amount is gone, others stay.
func TestRemovedAmount(t *testing.T) {
	has := corev1.ResourceList{"cpu": resource.MustParse("4"), "akri.sh/cam": resource.MustParse("2")}
	r := newRig(t, fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Capacity: has}}))
	if err := r.patch(t.Context(), "test",
		Patch{Status: Status{Capacity: Quantities{"akri.sh/cam": nil}}}); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the amount to go", func(node *corev1.Node) bool {
		_, cam := node.Status.Capacity["akri.sh/cam"]
		return !cam && !node.Status.Capacity.Cpu().IsZero()
	})
}

func TestNewNeedsItsConfig(t *testing.T) {
	nodes := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Nodes()
	for want, config := range map[string]Config{
		"node, client and informer are required": {Node: "a"},
		"Interval is negative":                   {Node: "a", Client: fake.NewClientset(), Nodes: nodes, Interval: -1},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want %q", err, want)
		}
	}
}

// The alert KubeslotAdvertisingFails counts patches of what pods can get: those alone advertise.
func TestPatchesThatAdvertise(t *testing.T) {
	amount := Quantities{"akri.sh/cam": ptr.To(resource.MustParse("2"))}
	for _, c := range []struct {
		patch Patch
		want  bool
	}{
		{Patch{Status: Status{Capacity: amount}}, true},
		{Patch{Status: Status{Allocatable: amount}}, true},
		{Patch{Status: Status{Conditions: []any{corev1.NodeCondition{}}}}, false},
		{Patch{Metadata: Metadata{Labels: map[string]*string{"mode": ptr.To("nri")}}}, false},
	} {
		if got := c.patch.advertises(); got != c.want {
			t.Errorf("%+v advertises: %v", c.patch, got)
		}
	}
}
