package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

const dongle types.ResourceName = "example.com/dongle"

// dongles turns a container's dongles into ports of hubs, for the group
// scheduler. What it does wrong is set by the test.
type dongles struct {
	name  string
	group bool
	nodes map[string]bool // unlocked, as in KubeDevice's plugins

	addNode func(*types.NodeInfo)
	fits    func(*types.NodeInfo, *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64)
	alloc   func(*types.NodeInfo, *types.PodInfo) error
	take    func(*types.NodeInfo, *types.PodInfo) error
	giveUp  func(*types.NodeInfo, *types.PodInfo) error
}

func newDongles() *dongles { return &dongles{name: "dongle", group: true, nodes: map[string]bool{}} }

func (d *dongles) GetName() string           { return d.name }
func (d *dongles) UsingGroupScheduler() bool { return d.group }
func (d *dongles) RemoveNode(name string)    { delete(d.nodes, name) }

func (d *dongles) AddNode(name string, node *types.NodeInfo) {
	d.nodes[name] = true
	if d.addNode != nil {
		d.addNode(node)
	}
}

// translate works in place: on one copy twice, it would ask for twice as much.
func (d *dongles) translate(node *types.NodeInfo, pod *types.PodInfo) error {
	if !d.nodes[node.Name] {
		return errors.New("unknown node")
	}
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for name, c := range containers {
			for range c.Requests[dongle] {
				types.AddGroupResource(c.DevRequests, "port/"+strconv.Itoa(len(c.DevRequests))+"/seats", 1)
			}
			_, c.DevRequests = resource.TranslateResource(node.Allocatable, c.DevRequests, "hub", "port")
			containers[name] = c
		}
	}
	return nil
}

func (d *dongles) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo, _ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if d.fits != nil {
		return d.fits(node, pod)
	}
	return d.translate(node, pod) == nil, nil, 0
}

func (d *dongles) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	if d.alloc != nil {
		return d.alloc(node, pod)
	}
	return d.translate(node, pod)
}

func (d *dongles) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	if d.take != nil {
		return d.take(node, pod)
	}
	return nil
}

func (d *dongles) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	if d.giveUp != nil {
		return d.giveUp(node, pod)
	}
	return nil
}

// faults collects what a Host told.
type faults struct {
	sync.Mutex
	told []string
}

func (f *faults) add(fault *Fault) {
	f.Lock()
	defer f.Unlock()
	f.told = append(f.told, fmt.Sprintf("%s %s %s", fault.Plugin, fault.Method, fault.Kind))
}

func (f *faults) expect(t *testing.T, want ...string) {
	t.Helper()
	f.Lock()
	defer f.Unlock()
	if got := strings.Join(f.told, ", "); got != strings.Join(want, ", ") {
		t.Errorf("faults %q, want %q", got, want)
	}
	f.told = nil
}

func newHost(t testing.TB, schedulers ...devicescheduler.DeviceScheduler) (*Host, *faults) {
	t.Helper()
	f := &faults{}
	h, err := New(schedulers, Options{OnFault: f.add})
	if err != nil {
		t.Fatal(err)
	}
	return h, f
}

// hubs is a node with hubs of two ports.
func hubs(n int) *types.NodeInfo {
	info := &types.NodeInfo{Allocatable: types.ResourceList{}}
	for port := range 2 * n {
		types.AddGroupResource(info.Allocatable, fmt.Sprintf("hub/%d/port/%d/seats", port/2, port), 1)
	}
	return info
}

// pod asks for n dongles. Its maps are nil where they can be.
func pod(n int64) *types.PodInfo {
	return &types.PodInfo{Name: "pod", RunningContainers: map[string]types.ContainerInfo{
		"main": {Requests: types.ResourceList{dongle: n}}}}
}

func mustAdd(t testing.TB, h *Host, name string, info *types.NodeInfo) {
	t.Helper()
	if err := h.AddNode(name, info); err != nil {
		t.Fatal(err)
	}
}

// place allocates and takes, as at Reserve.
func place(t testing.TB, h *Host, node, uid string, n int64) {
	t.Helper()
	p, err := h.Allocate(h.Node(node), pod(n))
	if err == nil {
		err = h.Take(node, uid, p)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func used(n *Node) int { return len(n.Info().Used) }
