package nodemode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/test/await"
)

func newWriter(t *testing.T, client kubernetes.Interface, nodes coreinformers.NodeInformer,
	c Config) *nodewriter.Writer {
	w, err := nodewriter.New(nodewriter.Config{Node: "a", Client: client, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	w.Add("mode", c.Plan())
	return w
}

// The node's amounts follow what the kubelet is told, without waiting for the kubelet or
// for the next look, and nothing is written when nothing changes.
func TestAmountsFollow(t *testing.T) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}})
	// No news of the node: what wakes the writer is Wake alone.
	client.PrependWatchReactor("nodes", func(ktesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
	version := 1 // as an API server counts it: without it a second look patches what the cache does not show
	client.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
		handled, obj, err := ktesting.ObjectReaction(client.Tracker())(a)
		if node, ok := obj.(*corev1.Node); ok {
			version++
			node.ResourceVersion = strconv.Itoa(version)
			err = client.Tracker().Update(a.GetResource(), node, "")
		}
		return handled, obj, err
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	var mu sync.Mutex
	served := map[string]Amount{"akri.sh/cam": {Listed: true, Capacity: 2, Allocatable: 2}}
	writer := newWriter(t, client, nodes, Config{Served: func() (map[string]Amount, bool) {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(served), true
	}})
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { writer.Run(ctx) })
	defer running.Wait()
	defer cancel()
	allocatable := func(want int64) {
		t.Helper()
		what := fmt.Sprintf("an allocatable amount of %d", want)
		await.Within(t, nodewriter.DefaultInterval/2, what, func() (bool, string) {
			node, err := client.CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			q, ok := node.Status.Allocatable["akri.sh/cam"]
			return ok && q.Value() == want, q.String()
		})
	}
	allocatable(2)
	for _, now := range []int{0, 1, 2} {
		mu.Lock()
		served["akri.sh/cam"] = Amount{Listed: true, Capacity: 2, Allocatable: now}
		mu.Unlock()
		writer.Wake()
		allocatable(int64(now))
	}
	patches := 0
	for _, a := range client.Actions() {
		if a.GetVerb() == "patch" {
			patches++
		}
	}
	if patches != 4 { // label and first amounts, and one for each change
		t.Errorf("%d patches, want 4", patches)
	}
}

// A node in another mode than NRI says nothing of NRI any more, and what others say of it stays.
func TestLeavesNRI(t *testing.T) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	is := func(c corev1.NodeConditionType) corev1.NodeCondition {
		return corev1.NodeCondition{Type: c, Status: corev1.ConditionTrue}
	}
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"kubeslot.io/nri-plugin": "kubecri", "mine": "x"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{is("Ready"), is("kubeslot.io/StartsWithoutKubecri"), is("kubeslot.io/Other")}},
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	writer := newWriter(t, client, factory.Core().V1().Nodes(), Config{})
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { writer.Run(ctx) })
	defer running.Wait()
	defer cancel()
	want := []corev1.NodeCondition{is("Ready"), is("kubeslot.io/Other")}
	await.Within(t, nodewriter.DefaultInterval/2, "the node to have what is others'", func() (bool, string) {
		node, err := client.CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		left := slices.Equal(node.Status.Conditions, want) &&
			maps.Equal(node.Annotations, map[string]string{"mine": "x"})
		return left, fmt.Sprint(node.Annotations, node.Status.Conditions)
	})
}
