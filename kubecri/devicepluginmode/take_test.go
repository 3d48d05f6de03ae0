package devicepluginmode

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode/deviceids"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

var cam = key{configuration: "cam"}

func east() key {
	return key{"cam", slot.InstanceName("cam", slot.InstanceHash("east", true, "", slot.ShortHash))}
}

// T5.1: the kubelet reads one response, so all devices are in it.
func TestAllocateAnswersOnce(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east", "west")
	answer, err := r.allocate(t.Context(), cam, []string{"cam-0", "cam-1"})
	if err != nil {
		t.Fatal(err)
	}
	var annotations []string
	for key, value := range answer.Annotations {
		annotations = append(annotations, key+"="+value)
	}
	slices.Sort(annotations)
	instance := east().instance
	if len(annotations) != 2 || !slices.ContainsFunc(annotations, func(a string) bool { return strings.HasPrefix(a, "akri.agent.slot-"+instance+"-1=C:cam-") }) {
		t.Errorf("annotations %v", annotations)
	}
	if len(answer.Envs) != 3 || answer.Envs["URL"] != "" || answer.Envs["AKRI_DEVICES_CAM"] == "" {
		t.Errorf("environment %v, want the URL of each by its hash, and the list", answer.Envs)
	}
	if usage := r.api.usage(); len(usage) != 2 {
		t.Errorf("claims %v", usage)
	}
}

// A claim of the same id by the same node is success without a write: init containers, a
// kubelet that restarted, a pod that comes before its predecessor's slot is released.
func TestSameIDAgain(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	for range 2 {
		if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
			t.Fatal(err)
		}
	}
	if r.api.creates != 1 {
		t.Errorf("%d claims were to be created, want 1", r.api.creates)
	}
}

// Of two ids of one Instance that the kubelet offers together one becomes a slot of another.
func TestIDBecomesAnotherSlot(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east", "west")
	for _, ids := range [][]string{{"cam-0", "cam-1"}, {"cam-2"}, {"cam-0", "cam-2"}} {
		if _, err := r.allocate(t.Context(), cam, ids); err != nil {
			t.Fatal(err)
		}
	}
	slots, instances := map[string]int{}, map[string]string{}
	for name, usage := range r.api.usage() {
		id := strings.Split(usage, ":")[1]
		slots[id]++
		instances[id] = name[:len(name)-2]
	}
	if want := map[string]int{"cam-0": 1, "cam-1": 1, "cam-2": 1}; !maps.Equal(slots, want) || instances["cam-0"] == instances["cam-2"] {
		t.Errorf("ids have %v slots, of %v", slots, instances)
	}
}

// A deletion is done and its answer is lost: the next pod that gets the id has a claim, also while the watch
// shows the former one. It does not get a slot that another node has taken meanwhile.
func TestADeletionWhoseAnswerWasLost(t *testing.T) {
	for _, taken := range []bool{false, true} {
		a := newAPI()
		r := newRig(t, a, "a", akriv0.ConfigurationSpec{}, "east")
		there := newRig(t, a, "b", akriv0.ConfigurationSpec{}, "east")
		name := east().instance + "-0"
		if _, err := r.allocate(t.Context(), east(), []string{name}); err != nil {
			t.Fatal(err)
		}
		r.catchUp(1)
		r.step(settling)
		a.lost = true
		if err := r.refresh(t.Context()); err == nil || len(a.usage()) > 0 {
			t.Fatalf("%v, and claims %v; want an error, and none", err, a.usage())
		}
		a.lost = false
		want := "a"
		if taken {
			want = "b"
			there.catchUp(math.MaxInt)
			if _, err := there.allocate(t.Context(), east(), []string{name}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.allocate(t.Context(), east(), []string{name}); (err != nil) != taken {
			t.Errorf("taken by another: %t, and got %v", taken, err)
		}
		if usage := a.usage(); usage[name] != want {
			t.Errorf("claims %v, want one of node %s", usage, want)
		}
	}
}

// The kubelet lists an id once it has the answer, however long the claim takes.
func TestASlotOfASlowAnswerIsNotReleased(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	r.api.creating = func() { r.step(settling) }
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} { // of a pod that has gone again, in the end
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if usage := r.api.usage(); len(usage) != want {
			t.Errorf("claims %v, want %d", usage, want)
		}
		r.step(settling)
	}
}

// A slot that the kubelet asks for once it was decided to release it is not released.
func TestAskedForSinceTheDecision(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	decided := r.holds("")
	r.asks.since(decided, r.Clock.Now())
	r.asks.release(decided)
	if len(decided) != 1 || r.asks.keeps(decided[0].Slot) {
		t.Fatalf("of %v none is to be released", decided)
	}
	r.step(time.Second)
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	if !r.asks.keeps(decided[0].Slot) {
		t.Errorf("%v is released", decided)
	}
}

// T4.3: another node was faster. An id that is a slot is refused, by the name of its
// holder; one that may be any slot becomes another.
func TestAnotherNodeWasFaster(t *testing.T) {
	a := newAPI()
	here, there := newRig(t, a, "a", akriv0.ConfigurationSpec{}, "east"), newRig(t, a, "b", akriv0.ConfigurationSpec{}, "east")
	lowest := east().instance + "-0"
	if _, err := there.allocate(t.Context(), east(), []string{lowest}); err != nil {
		t.Fatal(err)
	}
	if _, err := here.allocate(t.Context(), east(), []string{lowest}); err == nil ||
		!strings.Contains(err.Error(), lowest+" is claimed by a pod that is not known") ||
		!strings.Contains(err.Error(), "on node b") {
		t.Errorf("got %v", err)
	}
	// The node has learnt of the claim, by the conflict and not by its watch.
	if ids, err := here.prefer(t.Context(), east(), []string{lowest, east().instance + "-1"}, nil, 1); err != nil || !slices.Equal(ids, []string{east().instance + "-1"}) {
		t.Errorf("prefers %v, %v", ids, err)
	}
	want := map[string]string{lowest: "b", east().instance + "-1": "a"}
	if usage := a.usage(); !maps.Equal(usage, want) {
		t.Errorf("claims %v, want %v", usage, want)
	}
	// Both slots are taken: nothing is claimed, and the error says by whom.
	if _, err := there.allocate(t.Context(), cam, []string{"cam-0"}); err == nil || !strings.Contains(err.Error(), "no free slot") {
		t.Errorf("got %v", err)
	}
}

// GetPreferredAllocation claims: two nodes that choose at the same time choose the same
// slots, and neither's pod fails.
func TestPreferClaims(t *testing.T) {
	a := newAPI()
	here, there := newRig(t, a, "a", akriv0.ConfigurationSpec{}, "east"), newRig(t, a, "b", akriv0.ConfigurationSpec{}, "east")
	all := []string{east().instance + "-0", east().instance + "-1"}
	for _, node := range []*rig{here, there} { // neither sees the other's claims
		ids, err := node.prefer(t.Context(), east(), all, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := node.allocate(t.Context(), east(), ids); err != nil {
			t.Fatal(err)
		}
	}
	if usage := a.usage(); len(usage) != 2 {
		t.Errorf("claims %v", usage)
	}
}

// All or none: what a call claimed before it failed goes back.
func TestAllOrNone(t *testing.T) {
	a, no := newAPI(), false
	here, there := newRig(t, a, "a", akriv0.ConfigurationSpec{UniqueDevices: &no}, "east"), newRig(t, a, "b", akriv0.ConfigurationSpec{UniqueDevices: &no}, "east")
	all := []string{east().instance + "-0", east().instance + "-1"}
	if _, err := there.allocate(t.Context(), cam, all[1:]); err != nil {
		t.Fatal(err)
	}
	if _, err := here.allocate(t.Context(), cam, all); err == nil {
		t.Fatal("both were given")
	}
	if err := here.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if usage := a.usage(); len(usage) != 1 || usage[all[1]] == "" {
		t.Errorf("claims %v", usage)
	}
}

// T3.6: the kubelet offers ids of one Instance. What nobody uses is released first.
func TestStaleClaimsAreReleasedFirst(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east", "west")
	for _, ids := range [][]string{{"cam-0", "cam-2"}, {"cam-1", "cam-3"}} {
		if _, err := r.allocate(t.Context(), cam, ids); err != nil {
			t.Fatal(err)
		}
	}
	by := map[string]string{} // Instance by id
	for name, usage := range r.api.usage() {
		by[strings.Split(usage, ":")[1]] = name[:len(name)-2]
	}
	if by["cam-0"] != by["cam-1"] {
		t.Fatalf("ids 0 and 1 are of %s and %s, want one Instance", by["cam-0"], by["cam-1"])
	}
	r.machine.listed = []*podresourcesapi.PodResources{{Name: "p", Namespace: "default", Containers: []*podresourcesapi.ContainerResources{{
		Devices: []*podresourcesapi.ContainerDevices{{ResourceName: "akri.sh/cam", DeviceIds: []string{"cam-3"}}}}}}}
	r.step(settling)
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0", "cam-1"}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, usage := range r.api.usage() {
		got[strings.Split(usage, ":")[1]]++
	}
	if want := map[string]int{"cam-0": 1, "cam-1": 1, "cam-3": 1}; !maps.Equal(got, want) {
		t.Errorf("ids %v, want %v", got, want)
	}
}

// T5.8: the kubelet has its answer within our patience.
func TestAPIServerCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
		r.api.cut = true
		began := time.Now()
		_, err := r.allocate(t.Context(), cam, []string{"cam-0"})
		if took := time.Since(began); err == nil || took != patience {
			t.Errorf("after %s: %v", took, err)
		}
		if !strings.Contains(err.Error(), "cam-") || !strings.Contains(err.Error(), "no answer within") {
			t.Errorf("the error does not say what was waited for: %v", err)
		}
	})
}

// A pod that is not answered for has failed for good: an API server that restarts, or is
// slow, is asked again. One that has said no is not.
func TestAPIServerThatRestarts(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		answer error
		again  bool
	}{
		{refused, true}, {io.ErrUnexpectedEOF, true}, {apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewTooManyRequests("busy", 1), true}, {apierrors.NewTimeoutError("etcd", 1), true}, {apierrors.NewInternalError(io.EOF), true},
		{apierrors.NewForbidden(resource, "cam", nil), false}, {apierrors.NewNotFound(resource, ""), false},
		{apierrors.NewUnauthorized("expired"), false}, {apierrors.NewBadRequest("no"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
			r.api.refuse(c.answer)
			back := time.AfterFunc(patience/2, func() { r.api.refuse(nil) })
			defer back.Stop()
			if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); (err == nil) != c.again {
				t.Errorf("%v, answered with %v until the API server is back, was asked again: want %t", err, c.answer, c.again)
			}
		})
	}
}

// An answer that is lost leaves a claim: it is found by the next attempt, or released.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
		r.api.lost = true
		ctx, cancel := context.WithTimeout(t.Context(), retryEvery/2)
		defer cancel()
		if _, err := r.allocate(ctx, cam, []string{"cam-0"}); err == nil {
			t.Fatal("no error")
		}
		r.api.lost = false
		if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
			t.Fatal(err)
		}
		if usage := r.api.usage(); len(usage) != 1 || r.api.creates != 2 {
			t.Errorf("claims %v after %d creates, want one after 2", usage, r.api.creates)
		}
		r.catchUp(100)
		r.step(settling)
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if usage := r.api.usage(); len(usage) != 0 {
			t.Errorf("claims %v are left", usage)
		}
	})
}

// Nothing is released when the kubelet or the runtime does not say what is in use; and
// what a container has is not, though pod-resources does not list it.
func TestWhatIsReleased(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east", "west")
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0", "cam-1"}); err != nil {
		t.Fatal(err)
	}
	r.step(time.Hour)
	r.machine.down = true
	if err := r.refresh(t.Context()); err == nil {
		t.Error("no error")
	}
	if usage := r.api.usage(); len(usage) != 2 {
		t.Errorf("claims %v", usage)
	}
	r.machine.down = false
	for name, usage := range r.api.usage() {
		if strings.Contains(usage, "cam-0") {
			parsed, _ := slot.Parse(name)
			key, value := slot.Annotation(parsed, "cam-0")
			r.machine.containers = []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", State: runtimeapi.ContainerState_CONTAINER_EXITED, Annotations: map[string]string{key: value}}}
		}
	}
	if err := r.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if usage := r.api.usage(); len(usage) != 1 {
		t.Errorf("claims %v, want that of the container", usage)
	}
	// Somebody deletes it: the id stays listed, and the claim is made again.
	for name, c := range r.api.claims {
		if err := (slotClaims{api: r.api}).Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}}); err != nil {
			t.Fatal(err)
		}
	}
	r.catchUp(100)
	if list := fmt.Sprint(r.resource(cam).List()); !strings.Contains(list, "{cam-0 true}") {
		t.Errorf("listed are %s", list)
	}
	if err := r.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if usage := r.api.usage(); len(usage) != 1 {
		t.Errorf("claims %v, want it made again", usage)
	}
}

// While a slot is given back its id stays listed: a pod that comes then waits for it.
func TestListedWhileReleased(t *testing.T) {
	for _, k := range []key{cam, east()} {
		r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
		if _, err := r.allocate(t.Context(), k, []string{r.resource(k).List()[0].ID}); err != nil {
			t.Fatal(err)
		}
		listed := r.resource(k).List()
		var got []deviceids.Device
		r.api.deleting = func() { got = r.resource(k).List() }
		r.step(settling)
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, listed) {
			t.Errorf("while the slot is given back %v are listed, want %v", got, listed)
		}
	}
}

// A claim that names a pod is another mode's.
func TestClaimsOfOtherModes(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	name := slot.Name{Instance: east().instance, Index: 0}
	r.shows(&v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name.String(), UID: "1", ResourceVersion: "1"},
		Spec: v1alpha1.SlotClaimSpec{NodeName: "a", Level: v1alpha1.InstanceLevel, Holder: name.String(),
			Pod: &v1alpha1.PodReference{Namespace: "ns", Name: "p"}}}, false)
	if _, err := r.allocate(t.Context(), east(), []string{name.String()}); err == nil || !strings.Contains(err.Error(), "claimed by pod ns/p on node a") {
		t.Errorf("got %v", err)
	}
}
