package configurationresources

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A pod is bound with one write, which has the assignment: what the author forged in it is
// overwritten, what he requested stays.
func TestAssignmentTravelsInTheBinding(t *testing.T) {
	r := cameraRig(t)
	p := pod("p", "1")
	p.Annotations[assignment.Annotation] = `{"podname":"forged","nodename":"forged","requests":{"other/x":1},
		"runningcontainer":{"main":{"requests":{"gpu/topology":1},"scorer":{"gpu":2},
		"devrequests":{"x":1},"allocatefrom":{"akri.sh/cam/0":"cam-000001-7","gpu":"x"}}}}`
	r.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	wantStatus(t, "Bind", r.Bind(r.ctx, r.schedule(p, "node-a"), p, "node-a"), fwk.Success)
	sent := r.bindings()
	if len(sent) != 1 || len(r.client.Actions()) != 1 {
		t.Fatalf("want one API call, a Binding; got %v", r.client.Actions())
	}
	want := `{"podname":"p","nodename":"node-a","requests":{"other/x":1},"runningcontainer":{"main":{` +
		`"requests":{"akri.sh/cam":1,"gpu/topology":1},"allocatefrom":{"akri.sh/cam/0":"cam-000001-0"},"scorer":{"gpu":2}}}}`
	if got := sent[0].Annotations[assignment.Annotation]; got != want {
		t.Errorf("assignment:\n got %s\nwant %s", got, want)
	}
	if got := sent[0].Annotations[assignment.HolderAnnotation]; got != "p-uid" {
		t.Errorf("holder is %q", got)
	}
	if sent[0].UID != "p-uid" || sent[0].Target.Name != "node-a" {
		t.Errorf("binding is for UID %s on %s", sent[0].UID, sent[0].Target.Name)
	}
}

// The API server allows 256 KiB of annotations, and does not check that at a Binding.
func TestTheMostSlotsFitTheAnnotation(t *testing.T) {
	var grants []assignment.Grant
	for i := range slotrequest.MaxSlots {
		name := strings.Repeat("c", 61) + fmt.Sprintf("%02d", i%slotrequest.MaxResources)
		grants = append(grants, assignment.Grant{Resource: name, Ordinal: slotrequest.MaxSlots - 1 - i/slotrequest.MaxResources,
			Slot: slot.Name{Instance: strings.Repeat("i", 63), Index: 9999}})
	}
	others := map[string]string{"others": strings.Repeat("x", 100<<10)}
	info := &types.PodInfo{RunningContainers: partOf(ledger.Assignment{"main": grants})}
	if _, err := assignment.Encode(info, "uid", others); err != nil {
		t.Error(err)
	}
}

// An assignment that would make the pod's annotations too large is refused
// before the bind, since the API server would refuse all later updates.
func TestAnnotationsTooLarge(t *testing.T) {
	r := cameraRig(t)
	p := pod("p", "1")
	p.Annotations["big"] = strings.Repeat("x", 256<<10-100)
	state := r.fits(p, "node-a")
	wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.UnschedulableAndUnresolvable, "annotations")
	r.Unreserve(r.ctx, state, p, "node-a")
	if r.cache.Holds("p-uid") {
		t.Error("the refused pod holds slots")
	}
}

// A bound pod holds what its assignment says; types/assignment: TestHeld has what is wrong with one.
func TestBoundPods(t *testing.T) {
	tests := map[string]struct {
		change func(*v1.Pod)
		holds  string
	}{
		"assigned":           {func(*v1.Pod) {}, "cam-000001-0"},
		"limits alone":       {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }, "cam-000001-0"},
		"forged at creation": {func(p *v1.Pod) { delete(p.Annotations, assignment.HolderAnnotation) }, ""},
		"malformed":          {func(p *v1.Pod) { p.Annotations[assignment.Annotation] = "{" }, ""},
		// Written by who may update pods, when the UID was known.
		"asks nothing, forged": {func(p *v1.Pod) { p.Spec.Containers[0].Resources = v1.ResourceRequirements{} }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := cameraRig(t)
			p := bound(pod("p", "1"), "node-a", cam1)
			test.change(p)
			r.cache.SetPod(p)
			var holds []string
			for _, s := range ledgerOf(r.cache).Holds("p-uid") {
				holds = append(holds, s.String())
			}
			if got := strings.Join(holds, " "); got != test.holds {
				t.Errorf("holds %q, want %q", got, test.holds)
			}
		})
	}
}

func forged(slot string) string {
	return `{"nodename":"node-a","runningcontainer":{"main":{"allocatefrom":{"akri.sh/cam/0":"` + slot + `"}}}}`
}
