package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// prepare claims the slots of a ResourceClaim and writes its CDI spec, all or nothing. A claim whose spec names the
// slots that it has is left as it is, also when its device is gone since.
func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	all, err := wants(claim)
	if err != nil {
		return nil, err
	}
	if err := d.Claims.Ready(ctx); err != nil {
		return nil, err
	}
	p, lost := d.recorded(claim.UID)
	if p != nil { // somebody may have deleted claims of it
		if lost = d.claimRecorded(ctx, p); lost != nil && !errors.Is(lost, errLost) {
			return nil, lost // it may be in use, and stays as it is
		}
	}
	surplus := compare(claim.UID, all, d.Claims.OfDRA())
	now := recordOf(claim, all)
	if lost == nil && len(surplus) == 0 && complete(all) && p.same(now) {
		return prepared(claim.UID, all), nil
	}
	devices, err := d.check(ctx, claim.Namespace, all)
	if err != nil {
		return nil, err
	}
	if lost != nil || p != nil && !p.within(now) {
		if err := d.revoke(ctx, reference(claim), p); err != nil {
			return nil, errors.Join(lost, fmt.Errorf("it was prepared with other slots before: %w", err))
		}
	}
	for _, c := range surplus {
		if err := d.Claims.Release(ctx, c); err != nil {
			return nil, err
		}
	}
	var took []slot.Name
	for i := range all {
		var more []slot.Name
		more, err = d.take(ctx, claim, &all[i])
		took = append(took, more...)
		if err != nil {
			break
		}
	}
	if err == nil {
		err = d.describe(recordOf(claim, all), devices)
	}
	if err != nil {
		return nil, errors.Join(err, d.giveBack(ctx, took))
	}
	var held []slot.Name
	for _, w := range all {
		held = append(held, w.held...)
	}
	klog.FromContext(ctx).Info("Prepared a ResourceClaim", "resourceClaim", klog.KObj(claim), "slots", held)
	return prepared(claim.UID, all), nil
}

// check returns the devices of what is wanted, by Instance, or why they cannot be given.
func (d *Driver) check(ctx context.Context, namespace string, all []want) (map[string]discovery.Device, error) {
	if d.CDI == nil {
		return nil, errors.New("kubecri writes no CDI specs here, by which containers get devices of ResourceClaims: " +
			"give it a --cdi-dir")
	}
	if err := d.CDI.Usable(); err != nil {
		return nil, err
	}
	devices := map[string]discovery.Device{}
	for _, w := range all {
		if _, known := devices[w.instance]; known {
			continue
		}
		configuration := d.configuration(w.instance)
		if err := mayPrepare(configuration, w.instance); err != nil {
			return nil, err
		}
		labelsOf := func() (map[string]string, error) { return claims.NamespacesOf(d.Kube)(ctx, namespace) }
		allowed, err := configuration.MayBeUsedFrom(namespace, labelsOf)
		switch {
		case err != nil:
			return nil, fmt.Errorf("whether namespace %s may use device %s is not known: %w", namespace, w.instance,
				err)
		case !allowed:
			return nil, fmt.Errorf("device %s is of Configuration %s/%s, whose spec.allowedNamespaces does not allow "+
				"namespace %s: delete the ResourceClaim, or have the namespace allowed", w.instance,
				configuration.Namespace, configuration.Name, namespace)
		}
		if devices[w.instance], err = d.Device(ctx, w.instance); err != nil {
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

// freeInterval is between two looks for a slot that is about to be released.
const freeInterval = 500 * time.Millisecond

// take claims slots of a device until as many are held as are wanted. It returns those that were not the
// ResourceClaim's before, also with an error.
func (d *Driver) take(ctx context.Context, claim *resourceapi.ResourceClaim, w *want) (took []slot.Name, err error) {
	capacity := 0
	if c := d.configuration(w.instance); c != nil {
		capacity = c.Spec.Slots()
	}
	taken, asked, since := d.taken(claim.UID, w), false, d.Clock.Now()
	for len(w.held) < w.slots {
		index, free := lowestFree(capacity, taken)
		if !free {
			if d.Clock.Since(since) >= d.FreeTimeout {
				return took, noneFree(w, capacity, taken)
			}
			select {
			case <-d.Clock.After(freeInterval):
			case <-ctx.Done():
				return took, noneFree(w, capacity, taken)
			}
			taken, asked = d.taken(claim.UID, w), false
			continue
		}
		name := slot.Name{Instance: w.instance, Index: index}
		wrote, other, err := d.Claims.HoldFor(ctx, name, v1alpha1.SlotClaimSpec{Level: v1alpha1.ConfigurationLevel,
			Holder: w.holder, ResourceClaim: new(reference(claim))})
		switch {
		case errors.Is(err, claims.ErrNotBelieved):
			taken[index] = "another node, which cannot reach the device"
			continue
		case err != nil:
			return took, err
		case other == nil:
			w.held, taken[index] = append(w.held, name), ""
			if wrote {
				took = append(took, name)
			}
			continue
		}
		if taken[index] = other.HeldBy(); asked { // somebody was faster
			continue
		}
		asked = true
		elsewhere, err := d.Claims.TakenElsewhere(ctx, w.instance)
		if err != nil {
			return took, err
		}
		for i, who := range elsewhere {
			if _, is := taken[i]; !is {
				taken[i] = who
			}
		}
	}
	slices.SortFunc(w.held, func(a, b slot.Name) int { return a.Index - b.Index })
	return took, nil
}

// taken returns who has slots of the device, by index, and "" for those that are held. Another claim has those that
// its spec names, also while they are not claimed. A slot of the same holder that the watch showed after held was
// read is not among them, so that take finds it.
func (d *Driver) taken(claim types.UID, w *want) map[int]string {
	taken := d.Claims.Taken(w.instance, w.holder)
	recorded, _ := d.allRecorded() // keep says of which spec it cannot be read
	for _, p := range recorded {
		for _, s := range p.Slots {
			if _, is := taken[s.Slot.Index]; !is && p.UID != claim && s.Slot.Instance == w.instance {
				taken[s.Slot.Index] = fmt.Sprintf("ResourceClaim %s/%s on node %s", p.Namespace, p.Name, d.Node)
			}
		}
	}
	for _, name := range w.held {
		taken[name.Index] = ""
	}
	return taken
}

func reference(claim *resourceapi.ResourceClaim) v1alpha1.ResourceClaimReference {
	return v1alpha1.ResourceClaimReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
}

// maxNamed is how many holders of slots an error names.
const maxNamed = 8

// noneFree says who has the slots that are wanted.
func noneFree(w *want, capacity int, taken map[int]string) error {
	var who []string
	for i := range capacity {
		if taken[i] != "" && !slices.Contains(who, taken[i]) {
			who = append(who, taken[i])
		}
	}
	more := ""
	if len(who) > maxNamed {
		who, more = who[:maxNamed], fmt.Sprintf(" and %d more", len(who)-maxNamed)
	}
	return fmt.Errorf("device %s has %d of the %d slots that request %s was allocated, and no other of its %d is "+
		"free: held by %s%s. It is tried again",
		w.instance, len(w.held), w.slots, w.request, capacity, strings.Join(who, ", "), more)
}

// giveBack releases slots of this node.
func (d *Driver) giveBack(ctx context.Context, names []slot.Name) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var errs []error
	for _, name := range names {
		errs = append(errs, d.Claims.GiveBack(ctx, name))
	}
	return errors.Join(errs...)
}

// prepared is what the kubelet is to know. The runtime gets the name of a request's CDI device once.
func prepared(claim types.UID, all []want) []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, 0, len(all))
	named := map[string]bool{}
	for _, w := range all {
		device := kubeletplugin.Device{Requests: []string{w.request}, PoolName: w.pool, DeviceName: w.instance,
			ShareID: w.share}
		if !named[w.request] {
			named[w.request] = true
			device.CDIDeviceIDs = []string{cdi.ClaimDevice(claim, w.request)}
		}
		devices = append(devices, device)
	}
	return devices
}

// unprepare releases all that a ResourceClaim has here.
func (d *Driver) unprepare(ctx context.Context, ref v1alpha1.ResourceClaimReference) error {
	all, err := d.Claims.ListOfDRA(ctx)
	if err != nil {
		return err
	}
	return d.release(ctx, ref, slices.DeleteFunc(all, func(c *v1alpha1.SlotClaim) bool {
		return !holdsFor(ref.UID, c.Spec.Holder)
	}))
}

// release revokes what a ResourceClaim is prepared with and then releases slots of it: those of a claim that is
// prepared are always found by its spec or by their SlotClaims.
func (d *Driver) release(ctx context.Context, ref v1alpha1.ResourceClaimReference, all []*v1alpha1.SlotClaim) error {
	p, err := d.recorded(ref.UID)
	if p == nil && err == nil && len(all) == 0 {
		return nil
	}
	if err := d.revoke(ctx, ref, p); err != nil {
		return err
	}
	var errs []error
	for _, c := range all {
		errs = append(errs, d.Claims.Release(ctx, c))
	}
	return errors.Join(errs...)
}
