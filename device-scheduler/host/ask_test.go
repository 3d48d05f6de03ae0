package host

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

const gadget types.ResourceName = "example.com/gadget"

// gadgets is a Remote: a node has room for a pod's gadgets under that name, of which it knows from
// SetNode what is used.
type gadgets struct {
	*dongles
	mu    sync.Mutex
	known map[string]*Node
	calls [][]string // the nodes of each Fit
	away  error
	fails error
	lies  *types.PodInfo
	// entered and leave, if set, are closed by Fit, and awaited by it.
	entered, leave chan struct{}
}

func newGadgets(name string) *gadgets {
	return &gadgets{dongles: &dongles{name: name}, known: map[string]*Node{}}
}

func (g *gadgets) AddNode(string, *types.NodeInfo) {}
func (g *gadgets) RemoveNode(string)               {}

func (g *gadgets) SetNode(n *Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known[n.Name()] = n; !n.Known() {
		delete(g.known, n.Name())
	}
}

func (g *gadgets) Recognizes(name types.ResourceName) bool { return name == gadget }

func (g *gadgets) Concerns(pod *types.PodInfo) (bool, error) {
	if pod.RunningContainers["main"].Requests[gadget] == 0 {
		return false, nil
	}
	return true, g.away
}

func (g *gadgets) Fit(pod *types.PodInfo, nodes []*Node) ([]Verdict, error) {
	if g.entered != nil {
		close(g.entered)
		<-g.leave
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	var verdicts []Verdict
	for _, n := range nodes {
		names = append(names, n.Name())
		left := n.Info().Allocatable[gadget] - n.Info().Used[gadget]
		changed := pod.Clone()
		changed.RunningContainers["main"].DevRequests[gadget] = left
		if g.lies != nil {
			changed = g.lies
		}
		fits := left >= pod.RunningContainers["main"].Requests[gadget]
		verdicts = append(verdicts, Verdict{OK: fits, Score: float64(left), Pod: changed})
	}
	g.calls = append(g.calls, names)
	return verdicts, g.fails
}

func (g *gadgets) PodAllocate(*types.NodeInfo, *types.PodInfo) error { return nil }

func (g *gadgets) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	node.Used[gadget] += pod.RunningContainers["main"].Requests[gadget]
	return nil
}

func (g *gadgets) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	if node.Used[gadget] -= pod.RunningContainers["main"].Requests[gadget]; node.Used[gadget] == 0 {
		delete(node.Used, gadget)
	}
	return nil
}

// asked returns how many nodes each call since the last time was about.
func (g *gadgets) asked() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var sizes []int
	for _, names := range g.calls {
		sizes = append(sizes, len(names))
	}
	g.calls = nil
	return fmt.Sprint(sizes)
}

func gadgetPod(n int64) *types.PodInfo {
	p := pod(0)
	p.RunningContainers["main"].Requests[gadget] = n
	return p
}

// withGadgets makes nodes 0 to n-1 known, with as many gadgets as has says.
func withGadgets(t *testing.T, h *Host, n int, has func(i int) int64) {
	t.Helper()
	for i := range n {
		mustAdd(t, h, fmt.Sprint(i), &types.NodeInfo{Allocatable: types.ResourceList{gadget: has(i)}})
	}
}

// inOrder yields nodes after the one given, as the framework looks at nodes.
func inOrder(n int) func(string) iter.Seq[string] {
	return func(node string) iter.Seq[string] {
		return func(yield func(string) bool) {
			var at int
			_, _ = fmt.Sscan(node, &at)
			for i := 1; i < n && yield(fmt.Sprint((at+i)%n)); i++ {
			}
		}
	}
}

// A Remote is asked once about nodes that are equal, and about others in chunks; the next cycle asks
// again.
func TestAskInChunks(t *testing.T) {
	const nodes = 200
	for name, tc := range map[string]struct {
		has   func(int) int64
		calls string
	}{
		"equal nodes":     {func(int) int64 { return 3 }, "[1]"},
		"three kinds":     {func(i int) int64 { return int64(3 + i%3) }, "[3]"},
		"different nodes": {func(i int) int64 { return int64(i) }, "[64 64 64 8]"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGadgets("gadget")
			h, faults := newHost(t, g)
			withGadgets(t, h, nodes, tc.has)
			for cycle := range 2 {
				ask := h.Ask(gadgetPod(3), inOrder(nodes))
				for i := range nodes {
					fit, has := ask.Fits(h.Node(fmt.Sprint(i))), tc.has(i)
					if fit.OK != (has >= 3) || fit.OK && fit.Score != float64(has) {
						t.Errorf("a node with %d: %+v", has, fit)
					}
				}
				if got := g.asked(); got != tc.calls {
					t.Errorf("cycle %d: calls about %s nodes, want %s", cycle, got, tc.calls)
				}
			}
			if fit := h.Ask(pod(1), inOrder(nodes)).Fits(h.Node("1")); !fit.OK || g.asked() != "[]" {
				t.Errorf("a pod that does not concern the plugin: %+v", fit)
			}
			faults.expect(t)
		})
	}
}

// What is asked about a node that is imagined is about that node alone, and holds for nodes that are
// as it is imagined.
func TestAskImagined(t *testing.T) {
	g := newGadgets("gadget")
	h, _ := newHost(t, g)
	withGadgets(t, h, 3, func(int) int64 { return 3 })
	if err := h.Take("0", "uid", gadgetPod(2)); err != nil {
		t.Fatal(err)
	}
	ask := h.Ask(gadgetPod(2), inOrder(3))
	if ask.Fits(h.Node("0")).OK || g.asked() != "[2]" {
		t.Error("a node that is full is not asked about together with others")
	}
	less, err := h.Without(h.Node("0"), "uid")
	if err != nil || !ask.Fits(less).OK || g.asked() != "[]" {
		t.Errorf("without its pod, the node is as others are: %v", err)
	}
	more, err := h.With(h.Node("0"), "other", gadgetPod(1))
	if err != nil || ask.Fits(more).OK || g.asked() != "[1]" {
		t.Errorf("with one more pod: %v", err)
	}
	if h.Ask(gadgetPod(2), inOrder(3)).Fits(more).OK || g.asked() != "[1]" {
		t.Error("others are asked about together with an imagined node")
	}
}

// What plugins before have made of the pod is part of the question.
func TestAskTranslated(t *testing.T) {
	d, first, second := newDongles(), newGadgets("a"), newGadgets("b")
	d.group = false
	d.fits = func(node *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		pod.RunningContainers["main"].DevRequests[dongle] = int64(len(node.Name)) // equal nodes, unequal answers
		return true, nil, 0
	}
	h, _ := newHost(t, d, first, second)
	withGadgets(t, h, 20, func(int) int64 { return 3 })
	ask := h.Ask(gadgetPod(3), inOrder(20))
	for i := range 20 {
		if fit := ask.Fits(h.Node(fmt.Sprint(i))); !fit.OK || fit.Score != 6 {
			t.Errorf("node %d: %+v", i, fit)
		}
	}
	if a, b := first.asked(), second.asked(); a != "[1 1]" || b != "[1 1]" {
		t.Errorf("calls about %s and %s nodes", a, b)
	}
}

// Workers share the calls that are made for one pod.
func TestAskParallel(t *testing.T) {
	g := newGadgets("gadget")
	h, faults := newHost(t, g)
	const nodes = 500
	withGadgets(t, h, nodes, func(i int) int64 { return int64(i % 100) })
	ask := h.Ask(gadgetPod(50), inOrder(nodes))
	var workers sync.WaitGroup
	for w := range 16 {
		workers.Go(func() {
			for i := w; i < nodes; i += 16 {
				if got := ask.Fits(h.Node(fmt.Sprint(i))).OK; got != (i%100 >= 50) {
					t.Errorf("node %d: %v", i, got)
				}
			}
		})
	}
	workers.Wait()
	if all := slices.Concat(g.calls...); len(all) != 100 {
		t.Errorf("asked about %d nodes of 100 kinds", len(all))
	}
	faults.expect(t)
}

// A Remote that fails is asked no more for the pod; one that is away is not asked at all. Others' pods
// do not wait.
func TestAskFails(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(*gadgets)
		calls  string
		fault  string
	}{
		"away":    {func(g *gadgets) { g.away = errors.New("plugin is away") }, "[]", "gadget PodFitsDevice away"},
		"fails":   {func(g *gadgets) { g.fails = errors.New("plugin is away") }, "[64]", "gadget PodFitsDevice error"},
		"it lies": {func(g *gadgets) { g.lies = slotGiver() }, "[64 64 64 8]", "gadget PodFitsDevice invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGadgets("gadget")
			h, faults := newHost(t, g)
			withGadgets(t, h, 200, func(i int) int64 { return int64(i) })
			tc.breaks(g)
			ask := h.Ask(gadgetPod(3), inOrder(200))
			for i := range 200 {
				fit := ask.Fits(h.Node(fmt.Sprint(i)))
				if fit.OK || len(fit.Reasons) != 1 || fit.Reasons[0].Fault == nil {
					t.Fatalf("%+v", fit)
				}
				if text := fit.Reasons[0].Text; g.lies == nil && text != "plugin is away" {
					t.Fatalf("reason %q", text)
				}
			}
			if got := g.asked(); got != tc.calls {
				t.Errorf("calls about %s nodes, want %s", got, tc.calls)
			}
			if g.lies == nil {
				faults.expect(t, tc.fault)
			} else if !strings.Contains(strings.Join(faults.told, ","), tc.fault) {
				t.Errorf("faults %q", faults.told)
			}
			if fit := h.Fits(h.Node("1"), pod(1)); !fit.OK {
				t.Errorf("a pod that does not concern the plugin: %+v", fit)
			}
			if _, err := h.Allocate(h.Node("7"), gadgetPod(3)); (err != nil) != (g.away != nil) {
				t.Errorf("Allocate: %v", err)
			}
		})
	}
}

// slotGiver is a pod that was given a slot.
func slotGiver() *types.PodInfo {
	p := gadgetPod(3).Clone()
	p.RunningContainers["main"].AllocateFrom["akri.sh/x/0"] = "x-0"
	return p
}

// While a Remote takes its time with an answer, pods are counted on other nodes.
func TestCountWhileRemoteIsAsked(t *testing.T) {
	g := newGadgets("gadgets")
	h, _ := newHost(t, g)
	withGadgets(t, h, 2, func(int) int64 { return 3 })
	g.entered, g.leave = make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Fits(h.Node("0"), gadgetPod(1))
	}()
	<-g.entered
	taken := make(chan error, 1)
	go func() { taken <- h.Take("1", "uid", gadgetPod(1)) }()
	if err := await.Next(t, "a pod to be counted", taken); err != nil {
		t.Error(err)
	}
	close(g.leave)
	<-ended
	if used := h.Node("1").Info().Used[gadget]; used != 1 {
		t.Errorf("%d are used", used)
	}
}

// A plugin that comes later is asked after the first ones, by name. It gets all nodes, with what
// their pods use, and none is asked about before; it may come to use the group scheduler.
func TestPut(t *testing.T) {
	d := newDongles()
	d.name = "z"
	d.group = false
	h, faults := newHost(t, d)
	withGadgets(t, h, 2, func(int) int64 { return 3 })
	p, err := h.Allocate(h.Node("0"), gadgetPod(2))
	if err == nil {
		err = h.Take("0", "uid", p)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := h.Node("0")
	b, a := newGadgets("b"), newGadgets("a")
	for _, g := range []*gadgets{b, a} {
		if err := h.Put(g); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(h.Plugins()); got != "[z a b]" {
		t.Errorf("plugins %s", got)
	}
	// Both count: they are one fake.
	if n := b.known["0"]; n != h.Node("0") || n.Info().Used[gadget] != 4 || b.known["1"].Info().Used[gadget] != 0 {
		t.Errorf("node 0 with %v", n.Info())
	}
	if h.Fits(h.Node("0"), gadgetPod(1)).OK || !h.Fits(before, gadgetPod(1)).OK {
		t.Error("plugins that have not counted its pods are asked about a node")
	}
	if h.Node("0").set.group != nil {
		t.Error("the group scheduler is used by none")
	}
	b.group = true
	if err := h.Put(b); err != nil || h.Node("1").set.group == nil || fmt.Sprint(h.Plugins()) != "[z a b]" {
		t.Errorf("%v, plugins %v", err, h.Plugins())
	}
	if err := h.RemoveNode("1"); err != nil || b.known["1"] != nil {
		t.Errorf("a node that is gone: %v, %v", err, b.known["1"])
	}
	for _, name := range []string{"z", "grpdevice"} {
		if err := h.Put(newGadgets(name)); err == nil || !strings.Contains(err.Error(), "is taken") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !h.Recognizes(h.Node("0"), gadgetPod(1), "main", gadget, false) ||
		h.Recognizes(h.Node("0"), gadgetPod(1), "main", "x", false) {
		t.Error("names that it answers for")
	}
	faults.expect(t)
}

// That a plugin failed at a node is no fault of the one that comes.
func TestPutWhileAnotherFails(t *testing.T) {
	d := newDongles()
	h, faults := newHost(t, d)
	withGadgets(t, h, 1, func(int) int64 { return 3 })
	d.addNode = func(*types.NodeInfo) { panic("no bus") }
	if err := h.Put(newGadgets("a")); err != nil || fmt.Sprint(h.Plugins()) != "[dongle a]" {
		t.Errorf("%v, plugins %v", err, h.Plugins())
	}
	faults.expect(t, "dongle AddNode panic")
}
