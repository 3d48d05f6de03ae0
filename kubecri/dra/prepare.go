package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// prepare prepares a ResourceClaim, and tries again for a while where it cannot. It gives back what it took if others
// have too many slots. After another error that stays for the kubelet's next try: thousands of slots take several.
func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	want, err := allocated(claim)
	if err != nil {
		return nil, err
	}
	for since := d.Clock.Now(); ; {
		err = d.alone(ctx, want.UID, func(ctx context.Context) error { return d.tryToPrepare(ctx, claim, *want) })
		if err == nil {
			return want.devices(), nil
		}
		if d.Clock.Since(since) >= d.patience {
			break
		}
		select {
		case <-d.Clock.After(retryInterval):
			continue
		case <-ctx.Done():
		}
		break
	}
	if !errors.Is(err, errNoneFree) {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return nil, errors.Join(err, d.alone(ctx, want.UID, func(ctx context.Context) error {
		if p, err := d.recorded(want.UID); p != nil || err != nil { // another call has prepared it
			return err
		}
		return d.releaseAll(ctx, d.of(want.UID))
	}))
}

// tryToPrepare claims the slots of a ResourceClaim, p, and writes its CDI spec. A claim that is prepared as it is
// allocated, and has its slots, is left as it is, also when its device is gone since.
func (d *Driver) tryToPrepare(ctx context.Context, claim *resourceapi.ResourceClaim, p preparedClaim) error {
	if err := d.CDI.Usable(ctx); err != nil {
		return err
	}
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	before, err := d.recorded(p.UID)
	isPrepared := before.isOf(&p)
	if isPrepared { // somebody may have deleted claims of it
		err = d.claimAgain(ctx, before)
		// It may be in use, and stays as it is.
		if err == nil && !before.Revoked || err != nil && !errors.Is(err, errLost) {
			return err
		}
	}
	devices, errDevices := d.devicesOf(ctx, &p)
	switch {
	case errDevices != nil:
		return errDevices
	case isPrepared && err == nil:
		before.Revoked = false
		return d.describe(before, devices)
	case before != nil || err != nil:
		if errInUse := d.revoke(ctx, p.ResourceClaimReference, before); errInUse != nil {
			return errors.Join(err, fmt.Errorf("it was prepared with other slots before: %w", errInUse))
		}
	}
	if err := d.takeAll(ctx, claim, &p); err != nil {
		return err
	}
	if err := d.describe(&p, devices); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Prepared a ResourceClaim", "resourceClaim", klog.KObj(claim))
	return d.releaseAll(ctx, p.beyond(d.of(p.UID)))
}

// takeAll claims slots for all results, once what the ResourceClaim has of another allocation is released: it may have
// been the same slots.
func (d *Driver) takeAll(ctx context.Context, claim *resourceapi.ResourceClaim, p *preparedClaim) error {
	others := slices.DeleteFunc(d.of(p.UID), func(c *v1alpha1.SlotClaim) bool { return c.AllocatedBy(claim) })
	if err := d.releaseAll(ctx, others); err != nil {
		return err
	}
	p.Results = slices.Clone(p.Results)
	for i := range p.Results {
		if err := d.take(ctx, p, &p.Results[i]); err != nil {
			return err
		}
	}
	return nil
}

// of are the SlotClaims of this node that the ResourceClaim holds.
func (d *Driver) of(claim types.UID) []*v1alpha1.SlotClaim { return ofClaim(claim, d.Claims.OfDRA()) }

// devicesOf returns the devices of what is to be prepared, by Instance, or why they cannot be given.
func (d *Driver) devicesOf(ctx context.Context, p *preparedClaim) (map[string]discovery.Device, error) {
	devices := map[string]discovery.Device{}
	for _, r := range p.Results {
		if _, known := devices[r.Instance]; known {
			continue
		}
		configuration := d.configuration(r.Instance)
		if err := mayPrepare(configuration, r.Instance); err != nil {
			return nil, err
		}
		labelsOf := func() (map[string]string, error) { return claims.NamespacesOf(d.Kube)(ctx, p.Namespace) }
		allowed, err := configuration.MayBeUsedFrom(p.Namespace, labelsOf)
		switch {
		case err != nil:
			return nil, fmt.Errorf("whether namespace %s may use device %s is not known: %w", p.Namespace, r.Instance,
				err)
		case !allowed:
			return nil, fmt.Errorf("device %s is of Configuration %s/%s, whose spec.allowedNamespaces does not allow "+
				"namespace %s: delete the ResourceClaim, or have the namespace allowed", r.Instance,
				configuration.Namespace, configuration.Name, p.Namespace)
		}
		if devices[r.Instance], err = d.Device(ctx, r.Instance); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// configuration is the one in force that the Instance is of; nil for none.
func (d *Driver) configuration(instance string) *akriv0.Configuration {
	all, _ := d.Configurations.Lister().List(labels.Everything()) // from memory
	oldest := akriv0.OldestOf(all)
	if oldest.InForce(instance) != nil { // it has the Instance's name
		return nil
	}
	return oldest.InForce(v1alpha1.DeviceConfiguration(instance))
}

// maxTries is how many slots that others have are tried before the API server is asked who has which: its
// answer has the SlotClaims of all of the Configuration's devices, be they thousands.
const maxTries = 8

// errNoneFree is in the error of a result for which others have too many slots.
var errNoneFree = errors.New("no other is free")

// take claims slots for a result until it has as many as it is to have. After an error it may have some.
func (d *Driver) take(ctx context.Context, p *preparedClaim, r *result) error {
	capacity := 0
	if c := d.configuration(r.Instance); c != nil {
		capacity = c.Spec.Slots()
	}
	taken, tries := d.taken(p, r), 0
	for len(r.Held) < r.Slots {
		index, free := lowestFree(capacity, taken)
		if !free {
			return noneFree(r, capacity, taken)
		}
		_, other, err := d.claimSlot(ctx, p, r, slot.Name{Instance: r.Instance, Index: index}, false)
		switch {
		case errors.Is(err, claims.ErrNotBelieved):
			taken[index] = "another node, which cannot reach the device"
			continue
		case err != nil:
			return fmt.Errorf("device %s: %d of the %d slots that request %s was allocated are claimed, and the next "+
				"try goes on from there: %w", r.Instance, len(r.Held), r.Slots, r.Request, err)
		case other == nil:
			r.Held, taken[index] = append(r.Held, index), ""
			continue
		}
		taken[index] = other.HeldBy()
		if tries++; tries != maxTries {
			continue
		}
		elsewhere, err := d.Claims.TakenElsewhere(ctx, r.Instance)
		if err != nil {
			return err
		}
		for i, who := range elsewhere {
			if _, is := taken[i]; !is {
				taken[i] = who
			}
		}
	}
	slices.Sort(r.Held)
	return nil
}

// claimSlot claims a slot for a result; again says that containers may use it. other is the claim in the way.
func (d *Driver) claimSlot(ctx context.Context, p *preparedClaim, r *result, name slot.Name, again bool,
) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	return d.Claims.HoldFor(ctx, name, v1alpha1.SlotClaimSpec{Level: v1alpha1.ConfigurationLevel,
		Holder: p.holder(r), MadeAgain: again, ResourceClaim: new(p.ResourceClaimReference)})
}

// taken returns who else has slots of the result's device, by index. Another claim has those that its spec names, also
// while they are not claimed. What the result has of an earlier try is not among them, so that take finds it.
func (d *Driver) taken(p *preparedClaim, r *result) map[int]string {
	taken := d.Claims.Taken(r.Instance, p.holder(r))
	recorded, _ := d.allRecorded() // keep says of which spec it cannot be read
	for _, other := range recorded {
		for name := range other.slots() {
			if _, is := taken[name.Index]; !is && other.UID != p.UID && name.Instance == r.Instance {
				taken[name.Index] = fmt.Sprintf("ResourceClaim %s/%s on node %s", other.Namespace, other.Name, d.Node)
			}
		}
	}
	return taken
}

// noneFree says who has the slots that are wanted.
func noneFree(r *result, capacity int, taken map[int]string) error {
	var who []string
	for i := range capacity {
		if taken[i] != "" && !slices.Contains(who, taken[i]) {
			who = append(who, taken[i])
		}
	}
	return fmt.Errorf("device %s has %d of the %d slots that request %s was allocated, and of its %d %w: held by %s. "+
		"It is tried again",
		r.Instance, len(r.Held), r.Slots, r.Request, capacity, errNoneFree, claims.Some(who))
}

// devices is what the kubelet is to know. The runtime gets the name of a request's CDI device once.
func (p *preparedClaim) devices() []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, 0, len(p.Results))
	named := map[string]bool{}
	for _, r := range p.Results {
		device := kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Instance,
			ShareID: r.Share}
		if !named[r.Request] {
			named[r.Request] = true
			device.CDIDeviceIDs = []string{cdi.ClaimDevice(p.UID, r.Request)}
		}
		devices = append(devices, device)
	}
	return devices
}

// unprepare releases all that a ResourceClaim has here. Of one that was never prepared, the API server may know slots
// whose creation it has not answered.
func (d *Driver) unprepare(ctx context.Context, ref v1alpha1.ResourceClaimReference) error {
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	if p, _ := d.recorded(ref.UID); p != nil {
		return d.release(ctx, ref, d.of(ref.UID))
	}
	all, err := d.Claims.ListOfDRA(ctx)
	if err != nil {
		return err
	}
	return d.release(ctx, ref, ofClaim(ref.UID, all))
}

// release revokes what a ResourceClaim is prepared with and then releases its SlotClaims.
func (d *Driver) release(ctx context.Context, ref v1alpha1.ResourceClaimReference, all []*v1alpha1.SlotClaim) error {
	p, err := d.recorded(ref.UID)
	if p == nil && err == nil && len(all) == 0 {
		return nil
	}
	if err := d.revoke(ctx, ref, p); err != nil {
		return err
	}
	return d.releaseAll(ctx, all)
}

// releaseAll releases SlotClaims of which no container has the slot.
func (d *Driver) releaseAll(ctx context.Context, all []*v1alpha1.SlotClaim) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, d.Claims.Release(ctx, c))
	}
	return errors.Join(errs...)
}
