package dra

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func unprepare(t *testing.T, r *rig, uid types.UID) error {
	t.Helper()
	results, err := r.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: uid,
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "claim-" + string(uid)}}})
	if _, ok := results[uid]; err != nil || !ok {
		t.Fatalf("%v (%v), want one result", results, err)
	}
	return results[uid]
}

// A claim has as many slots as it consumes, each request one CDI device with all of them; to prepare it again
// changes nothing, also when kubecri was started again, or the device is gone.
func TestPrepare(t *testing.T) {
	a := newAPI(configuration(3))
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 2", "one "+other+" 1", "two "+camera+" 1")
	results, err := r.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c})
	if err != nil {
		t.Fatal(err)
	}
	device := func(request, instance, share string, names ...string) kubeletplugin.Device {
		return kubeletplugin.Device{Requests: []string{request}, PoolName: "pool-" + instance, DeviceName: instance,
			ShareID: ptr.To(types.UID(share)), CDIDeviceIDs: names}
	}
	want := map[types.UID]kubeletplugin.PrepareResult{"u1": {Devices: []kubeletplugin.Device{
		device("one", camera, "s0", "slots.kubeslot.io/claim=u1-one"), device("one", other, "s1"), device("two", camera,
			"s2", "slots.kubeslot.io/claim=u1-two")}}}
	if diff := gocmp.Diff(want, results); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	slots := map[string]string{camera + "-0": "dra.u1.s0", camera + "-1": "dra.u1.s0", camera + "-2": "dra.u1.s2",
		other + "-0": "dra.u1.s1"}
	if diff := gocmp.Diff(slots, a.claimed(t)); diff != "" {
		t.Errorf("SlotClaims (-want +got):\n%s", diff)
	}
	spec := r.spec("u1")
	for _, part := range []string{`"AKRI_DEVICES=[{\"instance\":\"cam-8120fe\",\"slot\":\"cam-8120fe-0\"`,
		`\"slot\":\"cam-8120fe-1\"`, `\"slot\":\"cam-a19705-0\"`,
		`URL_8120FE=rtsp://a`, `URL_A19705=rtsp://b`, `"AKRI_DEVICES_ONE=[{`, `"AKRI_DEVICES_TWO=[{`,
		`AKRI_DEVICES=[{\"instance\":\"cam-8120fe\",\"slot\":\"cam-8120fe-2\"`} {
		if !strings.Contains(spec, part) {
			t.Errorf("the CDI spec lacks %s:\n%s", part, spec)
		}
	}
	r.kill()
	again := start(t, a, here, r.dir)
	again.devices.set(nil)
	a.set(func(do func() error) error { return errors.New("no write is needed") })
	if err := again.ask(t, c); err != nil || again.spec("u1") != spec {
		t.Errorf("prepared again: %v", err)
	}
	a.set(nil)
	for range 2 { // without the ResourceClaim, and again
		if err := unprepare(t, again, "u1"); err != nil || len(again.held(t)) != 0 || again.spec("u1") != "" {
			t.Errorf("not unprepared (%v): %v", err, a.claimed(t))
		}
	}
}

// A ResourceClaim of a Configuration's brokers brings the variables that only they get.
func TestClaimOfABroker(t *testing.T) {
	r := start(t, newAPI(configuration(3)), here, t.TempDir())
	seen := bothCameras()
	seen[camera] = discovery.Device{ID: "a", Properties: map[string]string{"URL": "rtsp://a"},
		BrokerVariables: map[string]bool{"URL": true}}
	r.devices.set(seen)
	for uid, tc := range map[types.UID]struct {
		label string
		want  bool
	}{"u1": {"cam", true}, "u2": {"usb", false}, "u3": {"", false}} {
		c := claim(uid, "one "+camera+" 1")
		c.Labels = map[string]string{"akri.sh/configuration": tc.label}
		if err := r.ask(t, c); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(r.spec(uid), `"URL=rtsp://a"`); has != tc.want {
			t.Errorf("label %q: the CDI spec has URL: %t, want %t:\n%s", tc.label, has, tc.want, r.spec(uid))
		}
	}
}

// A runtime without CDI gives a container nothing, and says nothing: the kubelet gets an error, also for a claim that
// is prepared.
func TestRuntimeIgnoresCDI(t *testing.T) {
	a := newAPI(configuration(1))
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 1")
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	spec, claimed := r.spec("u1"), a.claimed(t)
	r.runtime.dir = "/other"
	if err := r.ask(t, c); err == nil || !strings.Contains(err.Error(), "enable_cdi") {
		t.Errorf("the error %v does not say what to do", err)
	}
	r.runtime.dir = filepath.Join(r.dir, "cdi")
	if diff := gocmp.Diff(claimed, a.claimed(t)); diff != "" || r.spec("u1") != spec {
		t.Errorf("(-want +got):\n%s%s", diff, r.spec("u1"))
	}
}

// A call for one ResourceClaim waits for no other's, and for one of the same claim no longer than the kubelet does:
// a claim that waits for a slot does not keep the claim that has it from being unprepared.
func TestCallsWaitForTheirOwnClaim(t *testing.T) {
	r := start(t, newAPI(configuration(1)), here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		unlock, err := r.busy.Lock(t.Context(), types.UID(fmt.Sprintf("other%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
	}
	if err := unprepare(t, r, "u1"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results, _ := r.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{UID: "other0"}})
	if err := results["other0"]; !errors.Is(err, context.Canceled) {
		t.Errorf("the kubelet waits no longer, and the answer is %v", err)
	}
}

// A slot that another node is about to release is waited for: the kubelet would try again a minute later.
func TestSlotThatIsReleasedSoon(t *testing.T) {
	a := newAPI(configuration(1))
	r := start(t, a, here, t.TempDir())
	r.patience = time.Minute
	a.put(t, camera+"-0", v1alpha1.SlotClaimSpec{NodeName: there, Holder: "another"})
	var calls atomic.Int32
	a.set(func(do func() error) error { calls.Add(1); return do() })
	answer := make(chan error, 1)
	go func() { answer <- r.ask(t, claim("u1", "one "+camera+" 1")) }()
	await.That(t, "a second look for a free slot", func() bool { return calls.Load() > 4 })
	a.remove(t, camera+"-0")
	if err := <-answer; err != nil || a.claimed(t)[camera+"-0"] != "dra.u1.s0" {
		t.Errorf("%v; slots %v", err, a.claimed(t))
	}
}

// What comes by itself is waited for within the kubelet's call, be it an API server that restarts: the kubelet would
// try again a minute later. What the claim itself asks for is refused at once.
func TestPrepareWaits(t *testing.T) {
	a := newAPI(configuration(1))
	r := start(t, a, here, t.TempDir())
	r.patience = time.Minute
	tries := 0
	a.set(func(do func() error) error {
		if tries++; tries < 3 {
			return errors.New("connection refused")
		}
		return do()
	})
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil || a.claimed(t)[camera+"-0"] != "dra.u1.s0" {
		t.Errorf("%v; slots %v", err, a.claimed(t))
	}
	if err := r.ask(t, claim("u2", "one "+camera+" 2001")); err == nil {
		t.Error("no error")
	}
}

// What cannot be released while the API server is away is as soon as it is back, whether or not the kubelet asks again.
func TestUnpreparedInAnOutage(t *testing.T) {
	a := newAPI(configuration(2))
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 2")); err != nil {
		t.Fatal(err)
	}
	a.set(away)
	for range 2 {
		if err := unprepare(t, r, "u1"); err == nil || len(a.claimed(t)) != 2 || r.spec("u1") != "" {
			t.Errorf("%v; slots %v", err, a.claimed(t))
		}
	}
	a.set(nil)
	if left := r.held(t); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// Slots that others have are left to them. When none is free, what was taken is given back, and the error
// says who has them.
func TestOthersHaveTheSlots(t *testing.T) {
	a := newAPI(configuration(3))
	a.put(t, camera+"-0", v1alpha1.SlotClaimSpec{NodeName: there, Holder: "p1",
		Pod: &v1alpha1.PodReference{Namespace: "shop", Name: "till", UID: "p1"}})
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	before := map[string]string{camera + "-0": "p1", camera + "-1": "dra.u1.s0"}
	if diff := gocmp.Diff(before, a.claimed(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err := r.ask(t, claim("u2", "one "+other+" 1", "two "+camera+" 2"))
	for _, part := range []string{"ResourceClaim ns/claim-u2", here, camera, "pod shop/till on node " + there,
		"ResourceClaim ns/claim-u1 on node " + here, "1 of the 2 slots"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error %v does not say %q", err, part)
		}
	}
	if diff := gocmp.Diff(before, r.held(t)); diff != "" || r.spec("u2") != "" {
		t.Errorf("not all was given back (-want +got):\n%s%s", diff, r.spec("u2"))
	}
}

// Whatever call is not answered, done or not, and wherever kubecri is killed: when the API server is back, a
// claim that is prepared again has its slots, and one that is unprepared leaves nothing.
func TestInterrupted(t *testing.T) {
	c := claim("u1", "one "+camera+" 2", "two "+other+" 1")
	for calls := range 12 {
		for _, done := range []bool{false, true} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d calls, the next done %t, killed %t", calls, done, killed), func(t *testing.T) {
					a := newAPI(configuration(3))
					a.put(t, camera+"-1", v1alpha1.SlotClaimSpec{NodeName: there, Holder: "p1"})
					r := start(t, a, here, t.TempDir())
					fail := func() {
						n := 0
						a.set(func(do func() error) error {
							if n++; n <= calls {
								return do()
							}
							if n == calls+1 && done {
								_ = do()
							}
							return errors.New("connection refused")
						})
					}
					next := func() {
						a.set(nil)
						if killed {
							r.kill()
							r = start(t, a, here, r.dir)
						}
					}
					fail()
					_ = r.ask(t, c)
					next()
					if calls%2 == 0 {
						if err := r.ask(t, c); err != nil {
							t.Fatal(err)
						}
						want := map[string]string{camera + "-0": "dra.u1.s0", camera + "-1": "p1", camera +
							"-2": "dra.u1.s0", other + "-0": "dra.u1.s1"}
						if diff := gocmp.Diff(want, r.held(t)); diff != "" {
							t.Errorf("prepared again (-want +got):\n%s", diff)
						}
						fail()
						_ = unprepare(t, r, "u1")
						next()
					}
					if err := unprepare(t, r, "u1"); err != nil {
						t.Fatal(err)
					}
					await.That(t, "nothing to be left", func() bool { // not even what the watch shows only now
						err := r.look(t.Context())
						return err == nil && len(r.held(t)) == 1 &&
							a.claimed(t)[camera+"-1"] == "p1" && r.spec("u1") == ""
					})
				})
			}
		}
	}
}

// A slot whose creation was not answered may show in the watch after the ResourceClaim's slots were counted:
// it counts, and is not taken for somebody else's.
func TestSlotThatShowsLate(t *testing.T) {
	a := newAPI(configuration(3))
	a.put(t, camera+"-1", v1alpha1.SlotClaimSpec{NodeName: there, Holder: "p1"})
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 2")
	p, err := allocated(c)
	if err != nil {
		t.Fatal(err)
	}
	a.put(t, camera+"-0", v1alpha1.SlotClaimSpec{NodeName: here, Holder: "dra.u1.s0",
		ResourceClaim: &p.ResourceClaimReference})
	await.That(t, "the slot in the watch", func() bool { return len(r.of(p.ResourceClaimReference)) == 1 })
	if err := r.take(t.Context(), p, &p.Results[0]); err != nil { // with what was counted before
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]int{0, 2}, p.Results[0].Held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// Two nodes that prepare at once never have a slot both, and a claim that is prepared twice at once has its
// slots once.
func TestPrepareAtOnce(t *testing.T) {
	a := newAPI(configuration(4))
	nodes := []*rig{start(t, a, here, t.TempDir()), start(t, a, there, t.TempDir())}
	var all sync.WaitGroup
	var mu sync.Mutex
	prepared := map[types.UID]int{}
	for i := range 12 {
		uid := types.UID(fmt.Sprintf("u%d", i/2)) // u0, u2, u4 on one node, the others on the other
		r := nodes[i/2%2]
		all.Go(func() {
			if r.ask(t, claim(uid, "one "+camera+" 2")) == nil {
				mu.Lock()
				defer mu.Unlock()
				prepared[uid]++
			}
		})
	}
	all.Wait()
	slots := map[string]int{}
	nodes[0].held(t)
	for _, holder := range nodes[1].held(t) {
		slots[holder]++
	}
	if len(prepared) > 2 {
		t.Errorf("prepared %v, with 4 slots of which each has 2", prepared)
	}
	for uid := range prepared {
		if slots["dra."+string(uid)+".s0"] != 2 {
			t.Errorf("%s is prepared and has %d slots, want 2", uid, slots["dra."+string(uid)+".s0"])
		}
		delete(slots, "dra."+string(uid)+".s0")
	}
	if len(slots) > 0 {
		t.Errorf("held by claims that are not prepared: %v", slots)
	}
}
