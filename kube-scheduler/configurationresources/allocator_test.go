package configurationresources

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// devicesOfDRA says that DRA gives all devices.
var devicesOfDRA = &akriv0.AllocatorStatus{Current: akriv0.AllocatorDRA}

// dracameras is cameras(1) with an allocator, and one that its status says.
func dracameras(allocator akriv0.Allocator, status *akriv0.AllocatorStatus) *akriv0.Configuration {
	c := cameras(1)
	c.Spec.Allocator, c.Status.Allocator = allocator, status
	return c
}

// A pod that requests what DRA gives, or is about to, is refused with what to write instead, and tried again
// when the Configuration is changed.
func TestDevicesThatDRAGives(t *testing.T) {
	const instead = "Configuration default/cam has spec.allocator DRA: request it with a ResourceClaim of " +
		"DeviceClass cam.slots.kubeslot.io"
	held := akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, []string{"cam-000001", "cam-000002"})
	for name, test := range map[string]struct {
		configuration *akriv0.Configuration
		want          string
	}{
		"just begun":      {dracameras(akriv0.AllocatorDRA, nil), instead + "; the change from Slots has just begun"},
		"some are held":   {dracameras(akriv0.AllocatorDRA, held), instead + "; DRA waits for 2 Instances"},
		"changed":         {dracameras(akriv0.AllocatorDRA, devicesOfDRA), instead},
		"on its way back": {dracameras("", held), "until Configuration default/cam has changed to allocator Slots"},
	} {
		for _, requested := range []string{"cam", "cam-000001"} {
			t.Run(name+" "+requested, func(t *testing.T) {
				r, p := cameraRig(t), asks("p", requested, "1")
				r.cache.SetConfiguration(test.configuration)
				r.requeued()
				r.cache.SetPod(p)
				r.know(p)
				_, status := r.filter(p, "node-a")
				wantStatus(t, "PreFilter", status, fwk.UnschedulableAndUnresolvable,
					"akri.sh/"+requested+" is given by DRA", test.want)
				if record, _ := r.cache.Queue.Get(p.UID); !record.Met(waitreason.AllocatedByDRA) {
					t.Errorf("it waits for %v", waitreason.Names[record.Reason()])
				}
				r.cache.Queue.Asked(p.UID)
				r.cache.SetConfiguration(cameras(1))
				r.wantActivated("changed back", "p")
				r.fits(p, "node-a")
			})
		}
	}
}

// draRig has cameras, which DRA gives, and a microphone, which node-a and node-b reach.
func draRig(t *testing.T) (*rig, *extendedresourcecache.ExtendedResourceCache) {
	r := newRig(t)
	classes := extendedresourcecache.NewExtendedResourceCache(klog.Background())
	r.handle.dra = draManager{classes: classes}
	r.cache.SetConfiguration(dracameras(akriv0.AllocatorDRA, devicesOfDRA))
	mic := cameras(1)
	mic.Name = "mic"
	r.cache.SetConfiguration(mic)
	shared(r.cache, "cam-000001", "mic-000002")
	return r, classes
}

// What the Configuration's own DeviceClass serves is left to upstream: the pod gets slots of other resources.
func TestExtendedResourceOfTheOwnDeviceClass(t *testing.T) {
	r, classes := draRig(t)
	both := asks("both", "mic", "1")
	both.Spec.Containers[0].Resources.Requests["akri.sh/cam"] = resource.MustParse("2")
	for _, p := range []*v1.Pod{pod("p", "1"), both} {
		_, status := r.filter(p, "node-a")
		wantStatus(t, "without the class", status, fwk.UnschedulableAndUnresolvable, "akri.sh/cam is given by DRA")
	}
	other := deviceClass("cameras", "akri.sh/cam")
	classes.OnAdd(other, false)
	_, status := r.filter(both, "node-a")
	wantStatus(t, "another class", status, fwk.UnschedulableAndUnresolvable, "DeviceClass cameras", "change that name")
	classes.OnDelete(other)

	classes.OnAdd(deviceClass("cam.slots.kubeslot.io", "akri.sh/cam"), false)
	_, status = r.filter(pod("p", "1"), "node-a")
	wantStatus(t, "a pod of it alone", status, fwk.Skip)
	_, status = r.filter(asks("named", "cam-000001", "1"), "node-a")
	wantStatus(t, "an Instance", status, fwk.UnschedulableAndUnresolvable, "akri.sh/cam-000001 is given by DRA")
	plugged := choosing(r, "node-b", map[string]string{"mic": "1"})
	_, status = r.filterOn(both, plugged)
	wantStatus(t, "on a node in device-plugin mode", status, fwk.Success)

	node := infoOf(func() *v1.Node {
		n := advertising("node-a", "")
		n.Status.Allocatable["akri.sh/mic"] = resource.MustParse("1")
		return n
	}())
	r.handle.nodes[0] = node
	r.create(both)
	state, status := r.filterOn(both, node)
	wantStatus(t, "Filter", status, fwk.Success)
	wantStatus(t, "Reserve", r.Reserve(r.ctx, state, both, "node-a"), fwk.Success)
	wantStatus(t, "Bind", r.Bind(r.ctx, state, both, "node-a"), fwk.Success)
	annotation := r.bindings()[0].Annotations["KubeDevice/DeviceInfo"]
	if !strings.Contains(annotation, "mic-000002-0") || strings.Contains(annotation, "cam") {
		t.Errorf("assigned: %s", annotation)
	}

	// The class has the name still when the devices go back, and for a moment when they are no longer DRA's.
	r.cache.SetConfiguration(dracameras("", devicesOfDRA))
	_, status = r.filter(pod("p", "1"), "node-a")
	wantStatus(t, "on its way back", status, fwk.UnschedulableAndUnresolvable, "has changed to allocator Slots")
	r.cache.SetConfiguration(cameras(1))
	_, status = r.filter(pod("p", "1"), "node-a")
	wantStatus(t, "the class is left over", status, fwk.UnschedulableAndUnresolvable,
		"DeviceClass cam.slots.kubeslot.io")
}

// A DeviceClass may come between upstream's PreFilter and ours: the pod, for which there is no claim, is not bound.
func TestDeviceClassThatComesBetween(t *testing.T) {
	r, classes := draRig(t)
	classes.OnAdd(deviceClass("cam.slots.kubeslot.io", "akri.sh/cam"), false)
	both := asks("both", "mic", "1")
	both.Spec.Containers[0].Resources.Requests["akri.sh/cam"] = resource.MustParse("1")
	for _, p := range []*v1.Pod{pod("p", "1"), both} {
		state, _ := r.filter(p, "node-a")
		state.SetSkipFilterPlugins(sets.New("DynamicResources"))
		wantStatus(t, "without a claim", r.Reserve(r.ctx, state, p, "node-a"), fwk.Error, "no ResourceClaim")
		if r.cache.Holds(string(p.UID)) {
			t.Errorf("pod %s holds a slot", p.Name)
		}
		state, _ = r.filter(p, "node-a")
		wantStatus(t, "with a claim", r.Reserve(r.ctx, state, p, "node-a"), fwk.Success)
	}
}

// A pod may have slots of one Configuration and a claim of another's devices.
func TestSlotsBesideAClaim(t *testing.T) {
	r, _ := draRig(t)
	p := asks("p", "mic", "1")
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "camera", ResourceClaimName: new(string)}}
	node := advertising("node-a", "")
	node.Status.Allocatable["akri.sh/mic"] = resource.MustParse("1")
	state, status := r.filterOn(p, infoOf(node))
	wantStatus(t, "Filter", status, fwk.Success)
	wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.Success)
	if got := ledgerOf(r.cache).Holds("p-uid"); !slices.Equal(got, slotsOf("mic-000002").Slots()) {
		t.Errorf("it holds %v", got)
	}
}
