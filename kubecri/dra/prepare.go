package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
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
	_ = wait.PollUntilContextTimeout(ctx, retryInterval, d.patience, true, func(context.Context) (bool, error) {
		err = d.alone(ctx, want.UID, func(ctx context.Context) error { return d.tryToPrepare(ctx, claim, *want) })
		return err == nil, nil
	})
	switch {
	case err == nil:
		return want.devices(), nil
	case !errors.Is(err, errNoneFree):
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return nil, errors.Join(err, d.alone(ctx, want.UID, func(ctx context.Context) error {
		return d.Claims.Free(ctx, d.of(want.ResourceClaimReference)) // but for what another call has prepared
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
		if errInUse := d.revoke(ctx, p.ResourceClaimReference); errInUse != nil {
			return errors.Join(err, fmt.Errorf("it was prepared with other slots before: %w", errInUse))
		}
	}
	if err := d.takeAll(ctx, claim, &p); err != nil {
		return err
	}
	if err := d.describe(&p, devices); err != nil {
		return err
	}
	d.Claims.Use(p.ResourceClaimReference, p.slots())
	klog.FromContext(ctx).Info("Prepared a ResourceClaim", "resourceClaim", klog.KObj(claim))
	return d.Claims.Free(ctx, d.of(p.ResourceClaimReference)) // what is beyond these
}

// claimAgain claims what a ResourceClaim is prepared with.
func (d *Driver) claimAgain(ctx context.Context, p *preparedClaim) error {
	var errs []error
	for name, holder := range p.slots() {
		c := d.configuration(name.Instance)
		if c == nil || name.Index >= c.Spec.Slots() {
			continue // a claim would not count
		}
		switch other, err := d.claimSlot(ctx, p, holder, name, true); {
		case err != nil && !errors.Is(err, claims.ErrNotBelieved):
			errs = append(errs, fmt.Errorf("claim slot %s again: %w", name, err))
		case other != nil:
			errs = append(errs, fmt.Errorf("it is prepared with slot %s, which is now claimed by %s: %w", name,
				other.HeldBy(), errLost))
		}
	}
	return errors.Join(errs...)
}

// errLost is in the error of a slot that another has by now.
var errLost = errors.New("both use the device at once: delete the pods of one")

// takeAll claims slots for all results. What the ResourceClaim has of another allocation is released: it may be the
// same slots.
func (d *Driver) takeAll(ctx context.Context, claim *resourceapi.ResourceClaim, p *preparedClaim) error {
	others := d.of(p.ResourceClaimReference)
	maps.DeleteFunc(others, func(name slot.Name, holder string) bool {
		return v1alpha1.DRAAllocates(claim, name.Instance, holder)
	})
	if err := d.Claims.Free(ctx, others); err != nil {
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

// of are the slots that the ResourceClaim holds or uses here, each with its holder.
func (d *Driver) of(claim v1alpha1.ResourceClaimReference) map[slot.Name]string {
	return d.Claims.OfResourceClaims()[claim]
}

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
	taken, tries := d.Claims.Taken(r.Instance, p.holder(r)), 0
	var who []string // has slots that are wanted
	for index := 0; len(r.Held) < r.Slots; index++ {
		if index == capacity {
			return fmt.Errorf("device %s has %d of the %d slots that request %s was allocated, and of its %d %w: held "+
				"by %s. It is tried again", r.Instance, len(r.Held), r.Slots, r.Request, capacity, errNoneFree,
				claims.Some(who))
		}
		holder, isTaken := taken[index]
		if !isTaken {
			other, err := d.claimSlot(ctx, p, p.holder(r), slot.Name{Instance: r.Instance, Index: index}, false)
			switch {
			case errors.Is(err, claims.ErrNotBelieved):
				holder = "another node, which cannot reach the device"
			case err != nil:
				return fmt.Errorf("device %s: %d of the %d slots that request %s was allocated are claimed, and the "+
					"next try goes on from there: %w", r.Instance, len(r.Held), r.Slots, r.Request, err)
			case other == nil:
				r.Held = append(r.Held, index)
				continue
			default:
				holder = other.HeldBy()
				if tries++; tries == maxTries {
					elsewhere, err := d.Claims.TakenElsewhere(ctx, r.Instance)
					if err != nil {
						return err
					}
					maps.Copy(taken, elsewhere)
				}
			}
		}
		if !slices.Contains(who, holder) {
			who = append(who, holder)
		}
	}
	return nil
}

// claimSlot claims a slot; again says that containers may use it. other is the claim in the way.
func (d *Driver) claimSlot(ctx context.Context, p *preparedClaim, holder string, name slot.Name, again bool,
) (other *v1alpha1.SlotClaim, err error) {
	_, other, err = d.Claims.HoldFor(ctx, name, v1alpha1.SlotClaimSpec{Level: v1alpha1.ConfigurationLevel,
		Holder: holder, MadeAgain: again, ResourceClaim: new(p.ResourceClaimReference)})
	return other, err
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

// unprepare has all released that a ResourceClaim has here. A slot that the API server says later that it has created
// is left over.
func (d *Driver) unprepare(ctx context.Context, ref v1alpha1.ResourceClaimReference) error {
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	if p, err := d.recorded(ref.UID); p == nil && err == nil && len(d.of(ref)) == 0 {
		return nil
	}
	return d.revoke(ctx, ref)
}
