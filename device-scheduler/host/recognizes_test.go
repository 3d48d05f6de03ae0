package host

import (
	"testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Whether anybody knows a request shows in the answers, with no word from the
// plugin.
func TestRecognizes(t *testing.T) {
	const hint, unknown types.ResourceName = "example.com/hint", "example.com/unknown"
	count := func(_ *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		main := pod.RunningContainers["main"]
		types.AddGroupResource(main.DevRequests, "port/9/seats", main.Requests[dongle])
		return pod.Requests[hint] <= 1, nil, 0 // 0 and 1 mean the same for this pod
	}
	hinted, ungrouped := newDongles(), newDongles()
	hinted.fits, ungrouped.fits, ungrouped.group = count, count, false
	h, faults := newHost(t, hinted)
	mustAdd(t, h, "node", hubs(1))
	without, _ := newHost(t, ungrouped)
	mustAdd(t, without, "node", hubs(1))
	none, _ := newHost(t)
	mustAdd(t, none, "node", hubs(1))

	const group types.ResourceName = "resource/group/port/0/seats"
	asked := pod(2)
	asked.Requests = types.ResourceList{hint: 1, unknown: 1}
	for _, name := range []types.ResourceName{unknown, "", "resource/groups", group, "dongle"} {
		asked.RunningContainers["main"].Requests[name] = 1
	}
	for _, test := range []struct {
		host      *Host
		container string
		name      types.ResourceName
		want      bool
	}{
		{h, "main", dongle, true},
		{h, "main", unknown, false},
		{h, "main", "", false},
		{h, "main", "dongle", false},
		{h, "", hint, true},
		{h, "", unknown, false},
		{h, "main", group, true},
		{without, "main", group, false},
		{without, "main", dongle, true},
		{none, "main", dongle, false},
	} {
		if got := test.host.Recognizes(test.host.Node("node"), asked, test.container, test.name); got != test.want {
			t.Errorf("container %q, %q: %v", test.container, test.name, got)
		}
	}
	faults.expect(t)
}
