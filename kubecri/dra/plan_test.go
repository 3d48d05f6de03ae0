package dra

import (
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// parameters is a claim with parameters for the driver, of the requests; for none of all.
func parameters(driver string, requests ...string) *resourceapi.ResourceClaim {
	c := claim("u1", "one "+camera+" 1")
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(`{"sharing":"off"}`)}}}}}
	return c
}

func TestWants(t *testing.T) {
	type inAllocation = resourceapi.DeviceRequestAllocationResult
	result := func(change func(*inAllocation)) *resourceapi.ResourceClaim {
		c := claim("u1", "one "+camera+" 2")
		change(&c.Status.Allocation.Devices.Results[0])
		return c
	}
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		slots []int
		bad   bool
	}{
		"two slots":               {claim: claim("u1", "one "+camera+" 2", "two "+other+" 1"), slots: []int{2, 1}},
		"not allocated":           {claim: &resourceapi.ResourceClaim{}},
		"another driver's":        {claim: result(func(r *inAllocation) { r.Driver = "gpu.example" })},
		"no consumed capacity":    {claim: result(func(r *inAllocation) { r.ConsumedCapacity = nil }), slots: []int{1}},
		"a half":                  {claim: claim("u1", "one "+camera+" 500m"), bad: true},
		"none":                    {claim: claim("u1", "one "+camera+" 0"), bad: true},
		"as many as there can be": {claim: claim("u1", "one "+camera+" 2000"), slots: []int{2000}},
		"more than there can be":  {claim: claim("u1", "one "+camera+" 2001"), bad: true},
		"more in all":             {claim: claim("u1", "one "+camera+" 1999", "two "+other+" 2"), bad: true},
		"adminAccess":             {claim: result(func(r *inAllocation) { r.AdminAccess = ptr.To(true) }), bad: true},
		"no Instance's name":      {claim: claim("u1", "one camera 1"), bad: true},
		"parameters for us":       {claim: parameters(v1alpha1.DRADriver, "one"), bad: true},
		"for all requests":        {claim: parameters(v1alpha1.DRADriver), bad: true},
		"for another request":     {claim: parameters(v1alpha1.DRADriver, "two"), slots: []int{1}},
		"for another driver":      {claim: parameters("gpu.example"), slots: []int{1}},
	} {
		got, err := allocated(test.claim)
		var slots []int
		if err == nil {
			for _, r := range got.Results {
				slots = append(slots, r.Slots)
			}
		}
		if !slices.Equal(slots, test.slots) || (err != nil) != test.bad {
			t.Errorf("%s: %v, %v; want %v, an error %t", name, slots, err, test.slots, test.bad)
		}
	}
}

func TestMayPrepare(t *testing.T) {
	status := func(current akriv0.Allocator, held ...string) *akriv0.AllocatorStatus {
		return akriv0.NewAllocatorStatus(current, held)
	}
	for name, test := range map[string]struct {
		spec   akriv0.Allocator
		status *akriv0.AllocatorStatus
		want   bool
	}{
		"the scheduler's":         {akriv0.AllocatorSlots, nil, false},
		"not DRA's yet":           {akriv0.AllocatorDRA, nil, false},
		"DRA's":                   {akriv0.AllocatorDRA, status(akriv0.AllocatorDRA), true},
		"DRA's, held by a pod":    {akriv0.AllocatorDRA, status(akriv0.AllocatorDRA, camera), true},
		"to change back":          {akriv0.AllocatorSlots, status(akriv0.AllocatorDRA), true},
		"changed back, and held":  {akriv0.AllocatorSlots, status(akriv0.AllocatorSlots, camera), true},
		"changed back, and freed": {akriv0.AllocatorSlots, status(akriv0.AllocatorSlots, other), false},
		"back and forth, held":    {akriv0.AllocatorDRA, status(akriv0.AllocatorSlots, camera), true},
	} {
		c := configuration(2)
		c.Spec.Allocator, c.Status.Allocator = test.spec, test.status
		if err := mayPrepare(c, camera); (err == nil) != test.want {
			t.Errorf("%s: %v, want it allowed: %t", name, err, test.want)
		}
	}
}

func TestHealthOf(t *testing.T) {
	for name, test := range map[string]struct {
		seen, gone bool
		listed     *v1alpha1.Device
		want       string
	}{
		"seen":               {seen: true, listed: &v1alpha1.Device{}, want: "Healthy"},
		"other nodes see it": {seen: true, want: "Healthy"},
		"no answer": {seen: true, listed: &v1alpha1.Device{Unschedulable: true, Shared: true},
			want: "Unhealthy"},
		"gone, and listed so": {seen: true, listed: &v1alpha1.Device{Unschedulable: true, Gone: true},
			want: "Unhealthy"},
		"gone":                  {gone: true, want: "Unhealthy"},
		"not known after start": {listed: &v1alpha1.Device{}, want: "Unknown"},
	} {
		state, message := healthOf(here, test.seen, test.gone, test.listed)
		if string(state) != test.want || (message == "") != (state == "Healthy") {
			t.Errorf("%s: %s, %q; want %s", name, state, message, test.want)
		}
	}
}

// A few slots that others have are tried in turn; where there are many, the API server is asked once who has them.
func TestManyOthersHaveSlots(t *testing.T) {
	for others, lists := range map[int]int{3: 0, 20: 1} {
		a := newAPI(configuration(30))
		r := start(t, a, here, t.TempDir())
		for i := range others {
			a.put(t, fmt.Sprintf("%s-%d", camera, i), v1alpha1.SlotClaimSpec{NodeName: there, Holder: "another"})
		}
		a.ClearActions()
		if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
			t.Fatal(err)
		}
		verbs := map[string]int{}
		for _, action := range a.Actions() {
			verbs[action.GetVerb()]++
		}
		if verbs["list"] != lists || verbs["create"] > maxTries+1 {
			t.Errorf("%d slots are taken: %v, want %d lists", others, verbs, lists)
		}
		if a.claimed(t)[fmt.Sprintf("%s-%d", camera, others)] != "dra.u1.s0" {
			t.Errorf("%d slots are taken: %v", others, a.claimed(t))
		}
		r.kill()
	}
}
