package agent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Of more devices than spec.maxDevices those with the lowest ids are reported. What is reported stays, also
// after a restart; others get the places of those that go, or when the number is raised.
func TestDevicesBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.MaxDevices = 3
		api, handler := newAPI(c), seeing("e", "d", "b", "f")
		agent := api.start(t, "node-a", handler)
		api.want(t, "node-a-0: b d e !DeviceLimit")
		const want = "1 devices are left out: spec.maxDevices is 3 on each node. "
		if got := api.slices(t)[0].Spec.Problems[0].Message; !strings.HasPrefix(got, want) {
			t.Errorf("the problem says %q", got)
		}
		handler.see("a", "b", "c", "d", "e")
		api.want(t, "node-a-0: b d e !DeviceLimit")
		if devices, _ := agent.Devices(); len(devices) != 3 {
			t.Errorf("pods can get %d devices", len(devices))
		}
		agent.stop()
		api.start(t, "node-a", handler)
		api.want(t, "node-a-0: b d e !DeviceLimit")
		handler.see("a", "b", "c", "e")
		api.want(t, "node-a-0: a b e !DeviceLimit")
		pass(time.Minute)

		c = c.DeepCopy()
		c.Spec.MaxDevices = 4
		api.configure(t, c)
		api.want(t, "node-a-0: a b c e")
		c = c.DeepCopy()
		c.Spec.MaxDevices = 1
		api.configure(t, c)
		handler.see("a", "b", "c", "e", "x")
		api.want(t, "node-a-0: a b c e !DeviceLimit")
	})
}

// Devices that come and go before they are written do not add up.
func TestTheLimitHoldsWhileDevicesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.MaxDevices = 3
		api, handler := newAPI(c), seeing("a", "b", "c")
		api.start(t, "node-a", handler)
		api.want(t, "node-a-0: a b c")
		api.outage(0)
		handler.see("x", "y", "z")
		pass(time.Minute)
		handler.see("a", "b", "c", "x", "y", "z")
		pass(time.Minute)
		api.outage(-1)
		pass(time.Minute)
		api.want(t, "node-a-0: a b c !DeviceLimit")
	})
}

// A Configuration that says nothing has the default on each node.
func TestDevicesBeyondTheDefaultLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		api.start(t, "node-a", seeing(many(1200)...))
		pass(2 * time.Second)
		var devices int
		var problems []v1alpha1.Problem
		for _, s := range api.slices(t) {
			devices += len(s.Spec.Devices)
			problems = append(problems, s.Spec.Problems...)
		}
		if devices != 1000 || len(problems) != 1 || problems[0].Reason != reasonDeviceLimit {
			t.Errorf("%d devices are reported, with the problems %s", devices, fmt.Sprint(problems))
		}
	})
}

// Whoever chooses devices' ids may give any number of them one hash. To find out which came first costs no
// look at all slices for each.
func TestSlicesAreReadOnceForAllHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		agent := api.start(t, "node-a", seeing(many(300)...))
		pass(2 * time.Second)
		named := agent.named(configuration("cam"))
		hash := slot.InstanceHash("foo7", true, "", slot.ShortHash)
		if id := named(hash); id != "foo7" {
			t.Errorf("hash %s is of %q", hash, id)
		}
		allocations := testing.AllocsPerRun(1, func() {
			for range 1000 {
				named(hash)
			}
		})
		if allocations > 100 {
			t.Errorf("%v allocations for a thousand questions", allocations)
		}
	})
}
