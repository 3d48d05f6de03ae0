package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// draEcho makes a Configuration of simulated devices, which both nodes reach and DRA gives, and waits until all are
// published. It returns their Instances, sorted.
func (r *rig) draEcho(name string, capacity int32, change func(*akriv0.ConfigurationSpec), ids ...string) []string {
	r.Helper()
	details, err := json.Marshal(map[string]any{"descriptions": ids})
	r.check(err)
	spec := akriv0.ConfigurationSpec{Capacity: capacity, Allocator: akriv0.AllocatorDRA,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: string(details)}}
	if change != nil {
		change(&spec)
	}
	r.check(r.createConfiguration(name, spec))
	var names []string
	for _, d := range r.awaitDevices(name, len(ids)) {
		names = append(names, d.name)
	}
	r.awaitPublished(name, names...)
	r.await("the DeviceClass of "+name, func() (bool, string) {
		_, err := kube.ResourceV1().DeviceClasses().Get(r.ctx, v1alpha1.DeviceClassName(name), metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return names
}

// published are the Configuration's devices in the complete pools of our driver, by name.
func (r *rig) published(configuration string) map[string]resourceapi.Device {
	r.Helper()
	list, err := kube.ResourceV1().ResourceSlices().List(r.ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + v1alpha1.DRADriver})
	r.check(err)
	newest := map[string]int64{}
	for _, s := range list.Items {
		newest[s.Spec.Pool.Name] = max(newest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
	}
	devices := map[string]resourceapi.Device{}
	for _, s := range list.Items {
		if s.Spec.Pool.Generation < newest[s.Spec.Pool.Name] {
			continue
		}
		for _, d := range s.Spec.Devices {
			if v1alpha1.DeviceConfiguration(d.Name) == configuration {
				devices[d.Name] = d
			}
		}
	}
	return devices
}

// awaitPublished waits until exactly these devices of the Configuration are published.
func (r *rig) awaitPublished(configuration string, instances ...string) {
	r.Helper()
	slices.Sort(instances)
	r.await(fmt.Sprintf("the published devices of %s to be %q", configuration, instances), func() (bool, string) {
		got := slices.Sorted(maps.Keys(r.published(configuration)))
		return slices.Equal(got, instances), fmt.Sprintf("%q; the status: %+v", got, r.status(configuration).Allocator)
	})
}

// awaitAllocator waits until the Configuration's status says who gives the devices, and which the former allocator's
// users hold. Without current there is to be no such status.
func (r *rig) awaitAllocator(configuration string, current akriv0.Allocator, held ...string) {
	r.Helper()
	r.await(fmt.Sprintf("the allocator of %s to be %q, of which %q are held", configuration, current, held),
		func() (bool, string) {
			a := r.status(configuration).Allocator
			if a == nil {
				return current == "", "none"
			}
			return a.Current == current && slices.Equal(a.Held, held), fmt.Sprintf("%+v", a)
		})
}

// wants is the spec of a claim for devices of the Configuration, a slot of each.
func wants(configuration string, count int64, changes ...func(*resourceapi.DeviceClaim)) resourceapi.ResourceClaimSpec {
	spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "device", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: v1alpha1.DeviceClassName(configuration), Count: count}}}}}
	for _, change := range changes {
		change(&spec.Devices)
	}
	return spec
}

// different has each of the claim's devices be another Instance.
func different(c *resourceapi.DeviceClaim) {
	c.Constraints = []resourceapi.DeviceConstraint{{
		DistinctAttribute: ptr.To(resourceapi.FullyQualifiedName(v1alpha1.DRADriver + "/" + v1alpha1.DRAInstance))}}
}

// where selects devices by an attribute.
func where(attribute, value string) func(*resourceapi.DeviceClaim) {
	return func(c *resourceapi.DeviceClaim) {
		c.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].%s == %q", v1alpha1.DRADriver, attribute, value)}}}
	}
}

// createClaim makes a ResourceClaim.
func (r *rig) createClaim(name string, spec resourceapi.ResourceClaimSpec) {
	r.Helper()
	_, err := kube.ResourceV1().ResourceClaims(r.ns).Create(r.ctx,
		&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	r.check(err)
}

// createTemplate makes a ResourceClaimTemplate.
func (r *rig) createTemplate(name string, spec resourceapi.ResourceClaimSpec) {
	r.Helper()
	_, err := kube.ResourceV1().ResourceClaimTemplates(r.ns).Create(r.ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}},
		metav1.CreateOptions{})
	r.check(err)
}

// claimPod is a pod whose container uses a claim of its own, made from the template.
func claimPod(name, node, template string) *v1.Pod {
	return usesClaim(newPod(name, node, nil), v1.PodResourceClaim{Name: "device", ResourceClaimTemplateName: &template})
}

// sharePod is a pod whose container uses a claim that others may use, too.
func sharePod(name, node, claim string) *v1.Pod {
	return usesClaim(newPod(name, node, nil), v1.PodResourceClaim{Name: "device", ResourceClaimName: &claim})
}

func usesClaim(p *v1.Pod, claim v1.PodResourceClaim) *v1.Pod {
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, claim)
	main := &p.Spec.Containers[0].Resources
	main.Claims = append(main.Claims, v1.ResourceClaim{Name: claim.Name})
	return p
}

// claimsOf are the ResourceClaims of a pod.
func (r *rig) claimsOf(p *v1.Pod) []*resourceapi.ResourceClaim {
	r.Helper()
	var names []string
	for _, c := range p.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			names = append(names, *s.ResourceClaimName)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	var claims []*resourceapi.ResourceClaim
	for _, name := range names {
		c, err := kube.ResourceV1().ResourceClaims(r.ns).Get(r.ctx, name, metav1.GetOptions{})
		r.check(err)
		claims = append(claims, c)
	}
	return claims
}

// agreeDRA checks that a running pod's ResourceClaims, the environment inside its container and the SlotClaims say
// the same, and returns its slots, sorted.
func (r *rig) agreeDRA(name, configuration string, count int) []string {
	r.Helper()
	p := r.awaitRunning(name)
	wantInstances, byHolder := []string{}, map[string]int{}
	claimed := map[string]string{} // ResourceClaims by holder
	for _, c := range r.claimsOf(p) {
		if c.Status.Allocation == nil {
			r.Fatalf("claim %s of running pod %s is not allocated", c.Name, name)
		}
		for _, result := range c.Status.Allocation.Devices.Results {
			if result.Driver != v1alpha1.DRADriver || v1alpha1.DeviceConfiguration(result.Device) != configuration {
				continue
			}
			slots := result.ConsumedCapacity[v1alpha1.DRADriver+"/"+v1alpha1.DRASlots]
			if slots.IsZero() {
				slots = result.ConsumedCapacity[v1alpha1.DRASlots]
			}
			holder := v1alpha1.DRAHolder(c.UID, result.ShareID)
			claimed[holder] = c.Namespace + "/" + c.Name
			for range slots.Value() {
				wantInstances = append(wantInstances, result.Device)
				byHolder[holder]++
			}
		}
	}
	if len(wantInstances) != count {
		r.Fatalf("the claims of pod %s are allocated %q, want %d slots", name, wantInstances, count)
	}

	env := r.env(name)
	var devices []struct {
		Instance, Slot string
		Properties     map[string]string
	}
	if err := json.Unmarshal([]byte(env["AKRI_DEVICES"]), &devices); err != nil {
		r.Fatalf("AKRI_DEVICES of pod %s is %q: %v", name, env["AKRI_DEVICES"], err)
	}
	held := r.claims(configuration)
	var slots, instances []string
	for i, d := range devices {
		slots, instances = append(slots, d.Slot), append(instances, d.Instance)
		h := held[d.Slot]
		if byHolder[h.holder]--; byHolder[h.holder] < 0 {
			r.Errorf("slot %s of pod %s is claimed by %+v, want one of %v", d.Slot, name, h, claimed)
		} else if want := (holding{holder: h.holder, node: p.Spec.NodeName, level: v1alpha1.ConfigurationLevel,
			claim: claimed[h.holder]}); h != want {
			r.Errorf("the claim of %s is %+v, want %+v", d.Slot, h, want)
		}
		hash := strings.ToUpper(d.Instance[strings.LastIndex(d.Instance, "-")+1:])
		for k, v := range d.Properties {
			if env[k+"_"+hash] != v || i == 0 && env[k] != v {
				r.Errorf("%s is %q and %s_%s %q, want %q", k, env[k], k, hash, env[k+"_"+hash], v)
			}
		}
		if d.Properties["DEBUG_ECHO_DESCRIPTION"] == "" {
			r.Errorf("device %s has no property: %s", d.Instance, env["AKRI_DEVICES"])
		}
	}
	slices.Sort(wantInstances)
	if slices.Sort(instances); !slices.Equal(instances, wantInstances) {
		r.Errorf("inside pod %s are %q, its claims are allocated %q", name, instances, wantInstances)
	}
	slices.Sort(slots)
	if len(slices.Compact(slices.Clone(slots))) != len(slots) {
		r.Errorf("pod %s has a slot twice: %q", name, slots)
	}
	return slots
}

// awaitUnallocated waits until the scheduler finds no device for the pod's claims.
func (r *rig) awaitUnallocated(name string) {
	r.Helper()
	r.awaitPending(name, "cannot allocate all claims")
}
