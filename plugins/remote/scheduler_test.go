package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// Equal nodes are asked for once, different ones in chunks, and by name once the plugin has them.
func TestFit(t *testing.T) {
	p := &half{}
	r := newRig(t, p)
	r.nodes(5000, func(int) int64 { return 4 })
	r.settled()
	if fit, _ := r.fits(5000, 3); fit != 5000 || p.asked() != "1+0" {
		t.Errorf("%d of 5,000 equal nodes fit", fit)
	}
	r.nodes(5000, func(i int) int64 { return int64(i) })
	r.settled()
	fit, reasons := r.fits(5000, 1000)
	if calls := p.asked(); fit != 4000 || calls != strings.Repeat("64+0 ", 78)+"8+0" {
		t.Errorf("%d of 5,000 nodes fit, in calls %s", fit, calls)
	}
	if len(reasons) != 1000 || reasons[7].Text != "Insufficient example.com/gadget" || reasons[7].Capacity != 7 {
		t.Errorf("%d reasons, such as %+v", len(reasons), reasons[7])
	}
	if len(r.faults) > 0 {
		t.Errorf("faults %v", r.faults)
	}
}

// Nodes that change are asked about as they are, whether the plugin has that or not, and those that
// are imagined are sent whole.
func TestFitChangedNodes(t *testing.T) {
	p := &half{}
	r := newRig(t, p)
	r.nodes(2, func(int) int64 { return 4 })
	r.settled()
	pod, err := r.host.Allocate(r.host.Node("0"), gadgets(3))
	if err == nil {
		err = r.host.Take("0", "uid", pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := r.host.Node("0").Info().Used; got[gadget] != 3 || len(got) != 1 {
		t.Errorf("used %v", got)
	}
	if fit, _ := r.fits(2, 2); fit != 1 {
		t.Errorf("%d of 2 nodes fit", fit)
	}
	r.settled()
	if n, _ := p.has("0"); n.GetUsed()[string(gadget)] != 3 {
		t.Errorf("the plugin has %v", n)
	}
	p.asked()
	if fit, _ := r.fits(2, 2); fit != 1 || p.asked() != "2+0" {
		t.Errorf("%d of 2 nodes fit", fit)
	}
	less, err := r.host.Without(r.host.Node("0"), "uid")
	if err != nil || !r.host.Fits(less, gadgets(2)).OK || p.asked() != "0+1" {
		t.Errorf("without its pod node 0 does not fit: %v", err)
	}
	if err := errors.Join(r.host.Return("0", "uid"), r.host.RemoveNode("1")); err != nil {
		t.Error(err)
	}
	r.settled()
	if n, known := p.has("0"); known != 1 || n.GetUsed()[string(gadget)] != 0 {
		t.Errorf("the plugin has %d nodes, and %v", known, n)
	}
}

// A plugin that does not say what it has applied is sent one message, and then nodes whole. What is not
// sent to it is kept for as long as it is there.
func TestUnapplied(t *testing.T) {
	p := &half{unapply: true}
	r := newRig(t, p)
	r.nodes(1000, func(i int) int64 { return 4 })
	if fit, _ := r.fits(1000, 3); fit != 1000 || p.asked() != "0+1" {
		t.Errorf("%d nodes fit", fit)
	}
	for i := range 1000 {
		if err := r.host.RemoveNode(fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	for session := range r.scheduler(r.plugin).sessions {
		session.mu.Lock()
		if session.revision != 1 || len(session.waiting) > maxNodes {
			t.Errorf("message %d was sent, %d nodes wait", session.revision, len(session.waiting))
		}
		session.mu.Unlock()
	}
}

// Nodes that are asked about together have one deadline, however many messages they take.
func TestFitDeadline(t *testing.T) {
	p := &half{unapply: true, pause: 100 * time.Millisecond}
	r := newRig(t, p)
	for i := range 4 {
		info := &types.NodeInfo{Allocatable: types.ResourceList{gadget: int64(4 + i)},
			KubeAlloc: types.ResourceList{types.ResourceName(strings.Repeat("x", maxRequestBytes/2)): 1}}
		if err := r.host.AddNode(fmt.Sprint(i), info); err != nil {
			t.Fatal(err)
		}
	}
	if fit, reasons := r.fits(4, 3); fit != 4 || p.asked() != "0+2 0+2" {
		t.Fatalf("%d nodes fit: %+v", fit, reasons)
	}
	if later := p.dues[1].Sub(p.dues[0]); later > p.pause/2 {
		t.Errorf("the second message may take %s longer than the first", later)
	}
}

// A plugin that is killed after Fit allocates nothing, and one that comes again does, with all nodes.
func TestKilled(t *testing.T) {
	r := newRig(t, nil)
	server := r.serve(&half{})
	r.nodes(3, func(int) int64 { return 4 })
	for round := range 3 {
		r.settled()
		if fit, reasons := r.fits(3, 2); fit != 3 {
			t.Fatalf("round %d: %d nodes fit: %+v", round, fit, reasons)
		}
		server.Stop()
		if pod, err := r.host.Allocate(r.host.Node("0"), gadgets(2)); err == nil {
			t.Errorf("a dead plugin allocated %v", pod)
		}
		await.That(t, "the plugin that was killed to be away", func() bool { return r.plugin.Away() != nil })
		fit, reasons := r.fits(3, 2)
		if fit != 0 || reasons[0].Fault.Kind != host.Away ||
			!strings.Contains(reasons[0].Text, `plugin "gadget" is away since`) {
			t.Errorf("%d nodes fit without the plugin: %+v", fit, reasons)
		}
		if fit := r.host.Fits(r.host.Node("0"), &types.PodInfo{}); !fit.OK {
			t.Errorf("a pod that does not concern it waits: %+v", fit)
		}
		server = r.serve(&half{})
		if _, err := r.host.Allocate(r.host.Node("0"), gadgets(2)); err != nil {
			t.Error(err)
		}
	}
}

// What makes no sense is a fault, and no node fits.
func TestLies(t *testing.T) {
	change := func(c *pb.ContainerChanges) func(*pb.FitResponse) {
		return func(a *pb.FitResponse) {
			a.Verdicts[0].Changes = &pb.PodChanges{RunningContainers: map[string]*pb.ContainerChanges{"main": c}}
		}
	}
	for name, lie := range map[string]func(*pb.FitResponse){
		"no verdict":        func(a *pb.FitResponse) { a.Verdicts = nil },
		"a verdict more":    func(a *pb.FitResponse) { a.Verdicts = append(a.Verdicts, a.Verdicts[0]) },
		"10⁶ verdicts":      func(a *pb.FitResponse) { a.Verdicts = slices.Repeat(a.Verdicts, 1_000_000) },
		"a negative score":  func(a *pb.FitResponse) { a.Verdicts[0].Score = -1 },
		"a negative amount": change(&pb.ContainerChanges{DevRequests: map[string]int64{"r": -1}}),
		"a slot":            change(&pb.ContainerChanges{AllocateFrom: map[string]string{"akri.sh/x/0": "x-0"}}),
		"a group resource":  change(&pb.ContainerChanges{AllocateFrom: map[string]string{"resource/group/x/0": "x"}}),
		"another container": func(a *pb.FitResponse) {
			a.Verdicts[0].Changes = &pb.PodChanges{RunningContainers: map[string]*pb.ContainerChanges{"other": nil}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &half{lie: lie})
			r.nodes(1, func(int) int64 { return 4 })
			fit, reasons := r.fits(1, 1)
			if fit != 0 || len(reasons) != 1 || len(reasons[0].Text) > 1000 ||
				!strings.Contains(reasons[0].Text, "gadget") {
				t.Errorf("%d nodes fit: %+v", fit, reasons)
			}
			if len(r.faults) != 1 || r.faults[0] != host.Lied && r.faults[0] != host.Errored {
				t.Errorf("faults %v", r.faults)
			}
		})
	}
}

// A plugin that applies what it was not sent is not called.
func TestLiesAboutNodes(t *testing.T) {
	r := newRig(t, nil)
	r.start(&half{revision: 1 << 40}, "gadget.sock")
	r.awaitAway("invalid result: it has applied message")
}

// named is a scheduler of which nothing but the name is asked.
type named struct {
	devicescheduler.DeviceScheduler
}

func (named) GetName() string           { return "gadget" }
func (named) UsingGroupScheduler() bool { return false }

// A plugin whose name a loaded one has is away, however often it is connected.
func TestNameTaken(t *testing.T) {
	h, err := host.New([]devicescheduler.DeviceScheduler{named{}}, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var second *Scheduler
	tries := make(chan struct{}, 100)
	r := &rig{T: t, sockets: run(t, setup{half: registration.Half_SCHEDULER,
		added: func(p *Plugin) { second, _ = NewScheduler(h, p) },
		connect: func(ctx context.Context, _ *Plugin, conn *Server, ready func()) error {
			tries <- struct{}{}
			return second.Connect(ctx, conn, ready)
		}})}
	r.start(&half{}, "gadget.sock")
	for range 3 {
		await.Next(t, "another try", tries)
	}
	r.awaitAway(`the name "gadget" is taken`)
}

// A plugin that does not answer costs a few deadlines, and is then away for a while.
func TestHangs(t *testing.T) {
	p := &half{hang: make(chan struct{})}
	r := newRig(t, p)
	r.nodes(200, func(i int) int64 { return int64(i) })
	for range maxLate {
		if fit, reasons := r.fits(200, 1); fit != 0 || reasons[0].Fault.Kind != host.TimedOut {
			t.Errorf("%d nodes fit: %+v", fit, reasons[0])
		}
	}
	awaitLog(t, r.log, errLate.Error())
	close(p.hang)
	await.That(t, "199 nodes to fit", func() (bool, string) {
		fit, reasons := r.fits(200, 1)
		return fit == 199, fmt.Sprintf("%d nodes fit: %+v", fit, reasons[0])
	})
}

// What a plugin answers for, and whether it uses the group scheduler, holds as it said last.
func TestStart(t *testing.T) {
	r := newRig(t, nil)
	server := r.serve(&half{})
	r.nodes(1, func(int) int64 { return 4 })
	if got := r.host.Plugins(); !slices.Equal(got, []string{"gadget"}) {
		t.Errorf("plugins %v", got)
	}
	const group types.ResourceName = "resource/group/x/0/cards"
	recognizes := func(name types.ResourceName) bool {
		return r.host.Recognizes(r.host.Node("0"), gadgets(1), "main", name, false)
	}
	if !recognizes(gadget) || recognizes("example.com/other") || recognizes(group) {
		t.Error("names that it answers for")
	}
	server.Stop()
	r.serve(&half{group: true})
	await.That(t, "the group scheduler to be used", func() bool { return recognizes(group) })
}

// What an older server says of itself counts for nothing once a newer one is called.
func TestLateStart(t *testing.T) {
	r := newRig(t, nil)
	late := &half{group: true, starts: make(chan struct{})}
	r.start(late, "late.sock")
	<-late.starts
	r.serve(&half{})
	<-late.starts
	awaitLog(t, r.log, "A newer socket of the plugin is called instead")
	if r.scheduler(r.plugin).UsingGroupScheduler() {
		t.Error("the older server has the last word")
	}
}

// Before it was there once, a plugin may concern any pod, and one of the policy ignore concerns none. What it
// has said it gives out nobody else gives: pods that request that wait for either while it is away.
func TestConcerns(t *testing.T) {
	s := run(t, setup{half: registration.Half_SCHEDULER, policies: map[string]string{"a": Required, "b": Ignore}})
	if n := len(s.Plugins()); n != 2 {
		t.Fatalf("there are %d plugins", n)
	}
	for _, p := range s.Plugins() {
		h, err := host.New(nil, host.Options{})
		if err != nil {
			t.Fatal(err)
		}
		half, err := NewScheduler(h, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, started := range []bool{false, true} {
			if started {
				half.said.Store(&pb.SchedulerStartResponse{Resources: []string{string(gadget)}})
			}
			for _, pod := range []*types.PodInfo{gadgets(1), {}} {
				concerned, err := half.Concerns(pod)
				want := !started && p.Required() || started && len(pod.RunningContainers) > 0
				if concerned != want || (err != nil) != want || err != nil && !errors.Is(err, ErrAway) {
					t.Errorf("plugin %s, started %v, pod %v: %v, %v", p.GetName(), started, pod, concerned, err)
				}
			}
		}
		if !half.Recognizes(gadget) {
			t.Errorf("plugin %s, away: does not recognize its resource", p.GetName())
		}
	}
}

// Without the group scheduler, a pod holds what AllocateFrom has of the plugin's resources.
func TestHolds(t *testing.T) {
	of := func(from types.ResourceLocation, requests types.ResourceList) types.ContainerInfo {
		return types.ContainerInfo{AllocateFrom: from, DevRequests: requests}
	}
	pod := &types.PodInfo{
		RunningContainers: map[string]types.ContainerInfo{
			"a": of(types.ResourceLocation{
				"example.com/gadget/0": "card-7", "other.com/x": "card-1", "resource/group/x": "x"}, nil),
			"b": of(types.ResourceLocation{"any": "example.com/gadgets"}, types.ResourceList{"any": 3})},
		InitContainers: map[string]types.ContainerInfo{
			"i": of(types.ResourceLocation{"any": "example.com/gadgets"}, types.ResourceList{"any": 4}),
			"j": of(types.ResourceLocation{"example.com/gadget/0": "card-7", "none": "example.com/gadget"},
				types.ResourceList{"none": 0})},
	}
	want := types.ResourceList{"card-7": 1, "example.com/gadgets": 4, "example.com/gadget": 1}
	if got := (patterns{"example.com/gad*"}).holds(pod); !maps.Equal(got, want) {
		t.Errorf("holds %v, want %v", got, want)
	}
	s, node := &Scheduler{}, types.NewNodeInfo()
	s.said.Store(&pb.SchedulerStartResponse{Resources: []string{"example.com/gad*"}})
	node.Used["card-7"] = 2
	taken := types.ResourceList{"card-7": 3, "example.com/gadgets": 4, "example.com/gadget": 1}
	if err := s.TakePodResources(node, pod); err != nil || !maps.Equal(node.Used, taken) {
		t.Errorf("used %v, %v", node.Used, err)
	}
	if err := s.ReturnPodResources(node, pod); err != nil || !maps.Equal(node.Used, types.ResourceList{"card-7": 2}) {
		t.Errorf("used %v, %v", node.Used, err)
	}
	if err := s.ReturnPodResources(node, pod); err == nil {
		t.Error("a pod returned what is not used")
	}
}

func TestPatterns(t *testing.T) {
	for name, want := range map[types.ResourceName]bool{"a/b": true, "a/bc": false, "c/d": true, "c/": true,
		"c": false} {
		if got := (patterns{"a/b", "c/*"}).match(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
