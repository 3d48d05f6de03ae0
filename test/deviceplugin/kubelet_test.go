package deviceplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// T1 of the seeds' tables, on real kubelets: what node.status shows.
func TestNodeScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.configuration("cam", 2, func(s *akriv0.ConfigurationSpec) { s.UniqueScope = akriv0.UniquePerNode }, "east", "west")
	x, y := in[0], in[1]
	both := map[string]string{"cam": "2/2", x: "2/2", y: "2/2"}
	r.awaitAmounts(nodeA, both)
	r.awaitAmounts(nodeB, both)

	r.run(newPod("two", nodeA, "main=cam:2")) // T1.1
	if got := r.devices("two", "main", "cam"); !slices.Equal(got, []string{x + "-1", y + "-1"}) {
		t.Errorf("the container has %v", got)
	}
	r.awaitAmounts(nodeA, map[string]string{"cam": "2/2", x: "2/1", y: "2/1"})
	r.awaitAmounts(nodeB, map[string]string{"cam": "2/2", x: "2/1", y: "2/1"})

	r.run(newPod("one", nodeB, "main="+y+":1")) // T1.2
	r.awaitAmounts(nodeA, map[string]string{"cam": "2/2", x: "2/1", y: "2/0"})
	r.awaitAmounts(nodeB, map[string]string{"cam": "2/1", x: "2/1", y: "2/1"})

	r.create(newPod("three", "", "main=cam:3")) // T1.4
	r.awaitPending("three", "Insufficient akri.sh/cam")

	for _, name := range []string{"two", "one"} {
		r.remove(name)
	}
	r.run(newPod("x", nodeA, "main="+x+":1")) // T1.3
	r.run(newPod("y", nodeA, "main="+y+":1"))
	r.awaitAmounts(nodeA, map[string]string{"cam": "2/2", x: "2/2", y: "2/2"})
	r.awaitAmounts(nodeB, map[string]string{"cam": "2/2", x: "2/1", y: "2/1"})
}

// T2 of the tables.
func TestSlotsAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	no := false
	in := r.configuration("gpu", 2, func(s *akriv0.ConfigurationSpec) { s.UniqueDevices = &no }, "east", "west")
	x, y := in[0], in[1]
	r.awaitAmounts(nodeA, map[string]string{"gpu": "4/4", x: "2/2", y: "2/2"})
	r.awaitAmounts(nodeB, map[string]string{"gpu": "4/4", x: "2/2", y: "2/2"})
	r.run(newPod("first", nodeB, "main="+x+":2"))
	r.awaitAmounts(nodeB, map[string]string{"gpu": "4/2", x: "2/2", y: "2/2"})
	r.awaitAmounts(nodeA, map[string]string{"gpu": "4/2", x: "2/0", y: "2/2"})
	r.run(newPod("rest", nodeA, "main=gpu:2")) // T2.3
	if got := r.devices("rest", "main", "gpu"); !slices.Equal(got, []string{y + "-0", y + "-1"}) {
		t.Errorf("the container has %v", got)
	}
	r.remove("first")
	r.remove("rest")
	r.awaitAmounts(nodeA, map[string]string{"gpu": "4/4"})
	r.run(newPod("three", nodeA, "main=gpu:3")) // T2.2
	r.awaitAmounts(nodeB, map[string]string{"gpu": "4/1"})
}

// T3 of the tables, and T5.1 to T5.3: containers of one pod.
func TestContainerScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.configuration("onvif", 2, func(s *akriv0.ConfigurationSpec) {
		s.BrokerProperties = map[string]string{"FRAMES": "25"}
	}, "east", "west")
	x, y := in[0], in[1]
	r.awaitAmounts(nodeA, map[string]string{"onvif": "2/2", x: "2/2", y: "2/2"})

	r.run(newPod("two", nodeA, "main=onvif:2"))
	held := r.devices("two", "main", "onvif")
	if len(held) != 2 || !strings.HasPrefix(held[0], x) || !strings.HasPrefix(held[1], y) {
		t.Errorf("the container has %v, want one of each", held)
	}
	if got := r.slots("two"); !slices.Equal(got, held) {
		t.Errorf("its annotations have %v, its environment %v", got, held)
	}
	env := r.env("two", "main")
	for _, name := range []string{"DEBUG_ECHO_DESCRIPTION", "FRAMES"} {
		for _, instance := range in {
			hash := strings.ToUpper(instance[strings.LastIndexByte(instance, '-')+1:])
			if env[name+"_"+hash] == "" {
				t.Errorf("no %s_%s in %v", name, hash, env)
			}
		}
		if value, ok := env[name]; ok {
			t.Errorf("%s=%s: of two resources it would be either's", name, value)
		}
	}
	r.awaitAmounts(nodeA, map[string]string{"onvif": "4/4", x: "2/1", y: "2/1"})
	r.remove("two")

	// An init container's ids are its pod's main container's too; a sidecar has its own.
	r.run(newPod("init", nodeA, "init:first=onvif:1", "main=onvif:1"))
	if got := r.slots("init"); len(got) != 1 {
		t.Errorf("init container and main container have %v, want one slot", got)
	}
	r.run(newPod("side", nodeA, "sidecar:helper=onvif:1", "main=onvif:1"))
	if helper, main := r.slotsOf("side", "helper"), r.slotsOf("side", "main"); len(helper) != 1 || len(main) != 1 || slices.Equal(helper, main) {
		t.Errorf("the sidecar has %v, the main container %v", helper, main)
	}
	for _, name := range []string{"init", "side"} {
		r.remove(name)
	}
	// Both resources in one container.
	r.awaitAmounts(nodeA, map[string]string{"onvif": "2/2", x: "2/2"})
	r.run(newPod("both", nodeA, "main=onvif:1,"+x+":1"))
	cl, il := r.devices("both", "main", "onvif"), r.devices("both", "main", x)
	if len(cl) != 1 || len(il) != 1 || cl[0] == il[0] {
		t.Errorf("the container has %v and %v", cl, il)
	}
}

// People are told which pod has which slot, and whom one waits for, though the kubelet gives them out.
func TestSlotsOfPodsAreShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.configuration("shown", 1, nil, "east")
	r.awaitAmounts(nodeA, map[string]string{"shown": "1/1"})
	r.run(newPod("viewer", nodeA, "main=shown:1"))
	r.create(newPod("late", nodeA, "main=shown:1"))
	for pod, want := range map[string][]string{
		"viewer": {"It has:", in[0] + "-0", "Held"},
		"late":   {"SlotsHeld", r.ns + "/viewer", "device-plugin mode"},
	} {
		r.await("`kubectl kubeslot pod "+pod+"` to name the slot and its pod", func() (bool, string) {
			out, err := shared.Kubectl(r.ctx, "kubeslot", "pod", "-n", r.ns, pod)
			for _, part := range want {
				if !strings.Contains(out, part) {
					return false, fmt.Sprint(out, err)
				}
			}
			return err == nil, fmt.Sprint(err)
		})
	}
	r.await("the list to say the same", func() (bool, string) {
		out, err := shared.Kubectl(r.ctx, "kubeslot", "pod", "-n", r.ns, "--no-headers")
		return err == nil && strings.Contains(out, "SlotsHeld") && !strings.Contains(out, "InsufficientResource"), fmt.Sprint(out, err)
	})
}
