package host

import (
	"testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Whether anybody knows a request shows in the answers, with no word from the
// plugin.
func TestRecognizes(t *testing.T) {
	const hint, inSpec, unknown types.ResourceName = "example.com/hint", "example.com/in-spec", "example.com/unknown"
	count := func(_ *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		main := pod.RunningContainers["main"]
		types.AddGroupResource(main.DevRequests, "port/9/seats", main.Requests[dongle]+main.KubeRequests[inSpec])
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
	main := asked.RunningContainers["main"]
	main.KubeRequests = types.ResourceList{inSpec: 1, unknown: 1}
	asked.RunningContainers["main"] = main
	for _, name := range []types.ResourceName{unknown, "", "resource/groups", group, "dongle"} {
		asked.RunningContainers["main"].Requests[name] = 1
	}
	for _, test := range []struct {
		host      *Host
		container string
		name      types.ResourceName
		spec      bool
		want      bool
	}{
		{h, "main", dongle, false, true},
		{h, "main", unknown, false, false},
		{h, "main", "", false, false},
		{h, "main", "dongle", false, false},
		{h, "", hint, false, true},
		{h, "", unknown, false, false},
		{h, "main", group, false, true},
		{without, "main", group, false, false},
		{without, "main", dongle, false, true},
		{none, "main", dongle, false, false},
		{h, "main", inSpec, true, true},
		{h, "main", inSpec, false, false},
		{h, "main", unknown, true, false},
	} {
		got := test.host.Recognizes(test.host.Node("node"), asked, test.container, test.name, test.spec)
		if got != test.want {
			t.Errorf("container %q, %q: %v", test.container, test.name, got)
		}
	}
	faults.expect(t)
}
