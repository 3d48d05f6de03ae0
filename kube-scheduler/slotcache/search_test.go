package slotcache

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// hardCluster has 39 devices that 50 nodes reach, and a request of 40 containers for which only a search can tell
// that there is no way: each takes any device that no other one takes, and has its own by name.
func hardCluster(unique akriv0.UniqueScope) (*Cache, []fwk.NodeInfo, *ledger.Request) {
	b := New(klog.Background(), testclock.NewFakeClock(time.Now()), nil)
	b.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cam"},
		Spec: akriv0.ConfigurationSpec{Capacity: 40, UniqueScope: unique, InstanceNameDigits: slot.LongHash}})
	var devices []v1alpha1.Device
	for i := range 39 {
		id := fmt.Sprint(i)
		devices = append(devices, v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "ns",
			Name: "cam"}, ID: id, Shared: true,
			Hash: slot.InstanceHash(id, true, "", slot.LongHash)})
	}
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint("node-", i))
		b.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: names[i]},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: names[i], Devices: devices}})
	}
	req := &ledger.Request{Pod: ledger.Pod{UID: "hard", Namespace: "ns", Name: "hard"}}
	for i := range 40 {
		c := ledger.ContainerRequest{Name: fmt.Sprint("c", i),
			Resources: []ledger.ResourceRequest{{Name: "cam", Count: 1}}}
		for at := range devices {
			if (at*7+i*11)%5 == 0 {
				c.Resources = append(c.Resources, ledger.ResourceRequest{Name: devices[at].Instance(), Count: 1})
			}
		}
		req.Containers = append(req.Containers, c)
	}
	return b, nodes(names...), req
}

// answers is how many answers the cycle remembers.
func answers(c *Cycle) (n int) {
	c.found.Range(func(any, any) bool { n++; return true })
	return n
}

// TestSearchesOfOneTryAreBounded: each node is another one to the request. All are answered, and few of them by
// a search to its end.
func TestSearchesOfOneTryAreBounded(t *testing.T) {
	b, list, req := hardCluster(akriv0.UniquePerNode)
	c := b.NewCycle(&v1.Pod{}, req, list, nil, ledger.Spread)
	for _, node := range list {
		if shortfall := c.Fit(node, c.Place(node)); shortfall == nil ||
			shortfall.Reason != ledger.SearchLimit {
			t.Fatalf("node %s: %+v, want that the search was given up", node.Node().Name, shortfall)
		}
	}
	if !c.Request.Budget.Spent() {
		t.Error("50 searches, and the try has steps left")
	}
	if n := answers(c); n != len(list) {
		t.Errorf("%d nodes have answers of their own, want all %d", n, len(list))
	}
}

// TestNodesThatAreAlikeHaveOneAnswer: the search is made once, and again for another try or when other pods are
// imagined.
func TestNodesThatAreAlikeHaveOneAnswer(t *testing.T) {
	b, list, req := hardCluster(akriv0.UniquePerContainer)
	c := b.NewCycle(&v1.Pod{}, req, list, nil, ledger.Spread)
	for _, node := range list {
		if shortfall := c.Fit(node, c.Place(node)); shortfall != nil {
			t.Fatalf("node %s: %+v", node.Node().Name, shortfall)
		}
	}
	if n := answers(c); n != 1 {
		t.Errorf("%d searches on nodes that are alike", n)
	}
	b.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "node-7"},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: "node-7"}})
	if shortfall := c.Fit(list[7], c.Place(list[7])); shortfall == nil ||
		shortfall.Reason != ledger.NotReachable {
		t.Errorf("a node that reaches nothing any more: %+v", shortfall)
	}
}
