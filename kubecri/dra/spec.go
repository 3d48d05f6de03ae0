package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The CDI spec of a ResourceClaim says what its containers get, and an annotation of it what was prepared. The
// kubelet asks once, and the runtime reads the spec for each container that it creates: so the spec is written
// again when the devices change. Of a device that is gone it has nothing, and no container is created with it.

// preparedAnnotation has a preparedClaim as JSON.
const preparedAnnotation = v1alpha1.DRADriver + "/prepared"

// preparedClaim is what a ResourceClaim has here.
type preparedClaim struct {
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Broker    string              `json:"broker,omitempty"` // the Configuration of whose brokers the claim is
	Slots     map[string][]string `json:"slots"`            // their names, by holder
	// Requests are the slots of each request. Without, nothing is described: it is revoked, or of an older kubecri.
	Requests map[string][]string `json:"requests"`
	// Nodes say which device nodes those of the spec are, by path.
	Nodes map[string]string `json:"nodes,omitempty"`
}

// recordOf is the record of a ResourceClaim with the slots that are held for what it wants.
func recordOf(claim *resourceapi.ResourceClaim, all []want) *preparedClaim {
	p := &preparedClaim{Namespace: claim.Namespace, Name: claim.Name, Broker: claim.Labels[akriv0.BrokerLabel],
		Slots: map[string][]string{}, Requests: map[string][]string{}}
	for _, w := range all {
		for _, name := range w.held {
			p.Slots[w.holder] = append(p.Slots[w.holder], name.String())
			p.Requests[w.request] = append(p.Requests[w.request], name.String())
		}
	}
	return p
}

// same reports whether both name the same slots, for the same holders and requests.
func (p *preparedClaim) same(other *preparedClaim) bool {
	return p != nil && maps.EqualFunc(p.Slots, other.Slots, slices.Equal[[]string]) &&
		maps.EqualFunc(p.Requests, other.Requests, slices.Equal[[]string])
}

// within reports whether the other has all of its slots, by the same holders.
func (p *preparedClaim) within(other *preparedClaim) bool {
	for holder, names := range p.Slots {
		for _, name := range names {
			if !slices.Contains(other.Slots[holder], name) {
				return false
			}
		}
	}
	return true
}

// slots are all that it names.
func (p *preparedClaim) slots() []slot.Name {
	var all []slot.Name
	for _, names := range p.Slots {
		for _, text := range names {
			if name, err := slot.Parse(text); err == nil {
				all = append(all, name)
			}
		}
	}
	return all
}

// unchanged reports whether the device nodes of the spec are the ones that they were. It reads the file system.
func (p *preparedClaim) unchanged() bool {
	device := checkpoint.Device{Nodes: p.Nodes}
	for path := range p.Nodes {
		device.Device.DeviceSpecs = append(device.Device.DeviceSpecs, discovery.DeviceSpec{HostPath: path})
	}
	return device.Unchanged() == nil
}

// recorded returns what a ResourceClaim is prepared with; nil for nothing.
func (d *Driver) recorded(claim types.UID) (*preparedClaim, error) {
	if d.CDI == nil {
		return nil, nil
	}
	annotations, err := d.CDI.ClaimAnnotations(claim)
	if err != nil || annotations == nil {
		return nil, err
	}
	p := &preparedClaim{}
	if err := json.Unmarshal([]byte(annotations[preparedAnnotation]), p); err != nil {
		return nil, fmt.Errorf("CDI spec of ResourceClaim %s: annotation %s: %w", claim, preparedAnnotation, err)
	}
	return p, nil
}

// allRecorded returns what all ResourceClaims are prepared with, also with an error of specs that cannot be read.
func (d *Driver) allRecorded() (map[types.UID]*preparedClaim, error) {
	all := map[types.UID]*preparedClaim{}
	if d.CDI == nil {
		return all, nil
	}
	claims, err := d.CDI.Claims()
	errs := []error{err}
	for _, claim := range claims {
		p, err := d.recorded(claim)
		if errs = append(errs, err); p != nil {
			all[claim] = p
		}
	}
	return all, errors.Join(errs...)
}

// eachPrepared calls do for each ResourceClaim that is prepared, with its lock. An error of one stops no other.
func (d *Driver) eachPrepared(ctx context.Context, do func(types.UID, *preparedClaim) error) error {
	all, err := d.allRecorded()
	errs := []error{err}
	for claim := range all {
		errs = append(errs, func() error {
			unlock, err := d.lock(ctx, claim)
			if err != nil {
				return err
			}
			defer unlock()
			p, err := d.recorded(claim)
			if err != nil || p == nil { // it was unprepared meanwhile
				return err
			}
			return do(claim, p)
		}())
	}
	return errors.Join(errs...)
}

// describe writes the CDI spec of a ResourceClaim: a device for each request, with all that its slots bring; none
// for a request of which a device is not among the devices. Of a container with several requests one's
// AKRI_DEVICES wins, so that each has another of its name.
func (d *Driver) describe(claim types.UID, p *preparedClaim, devices map[string]discovery.Device) error {
	holders := map[string]string{}
	for holder, names := range p.Slots {
		for _, name := range names {
			holders[name] = holder
		}
	}
	given := map[string]inject.Additions{}
	var nodes []discovery.DeviceSpec
	for request, names := range p.Requests {
		var grants []inject.Grant
		for _, text := range names {
			name, err := slot.Parse(text)
			if err != nil {
				return fmt.Errorf("request %s: %w", request, err)
			}
			if device, is := devices[name.Instance]; is {
				grants = append(grants, inject.Grant{Slot: name, Holder: holders[text], Device: device,
					Broker: p.Broker == v1alpha1.DeviceConfiguration(name.Instance)})
			}
		}
		if len(grants) < len(names) {
			continue
		}
		add, err := additions(request, grants)
		if err != nil {
			return fmt.Errorf("request %s: %w", request, err)
		}
		given[request], nodes = add, append(nodes, add.Devices...)
	}
	now, err := checkpoint.NewDevice("", discovery.Device{DeviceSpecs: nodes})
	if err != nil {
		return err
	}
	p.Nodes = now.Nodes
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return d.CDI.PutClaim(claim, given, map[string]string{preparedAnnotation: string(text)})
}

// additions are what a request gives.
func additions(request string, grants []inject.Grant) (inject.Additions, error) {
	edits, err := inject.SlotEdits("", grants)
	if err != nil {
		return inject.Additions{}, err
	}
	add, err := inject.Merge(inject.Container{}, edits...)
	for _, v := range add.Env {
		if v.Name == inject.DevicesEnv {
			name := inject.ListName(resourceclaim.BaseRequestRef(request))
			add.Env = append(add.Env, inject.Variable{Name: name, Value: v.Value})
		}
	}
	return add, err
}

// specRetry is between attempts to write specs that could not be written.
const specRetry = 10 * time.Second

// followDevices keeps the specs as the devices are until ctx is done.
func (d *Driver) followDevices(ctx context.Context) {
	for {
		changed, err := d.describeAgain(ctx)
		var retry <-chan time.Time
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot have CDI specs of ResourceClaims say what the devices are now; "+
				"trying again", "every", specRetry)
			retry = d.Clock.After(specRetry)
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// describeAgain has the specs say what the devices are now, and returns what is closed when they may have changed.
func (d *Driver) describeAgain(ctx context.Context) (<-chan struct{}, error) {
	seen, changed := d.Seen.Devices() // before looking, so that no change goes unseen
	return changed, d.eachPrepared(ctx, func(claim types.UID, p *preparedClaim) error {
		if p.Requests == nil {
			return nil
		}
		devices := map[string]discovery.Device{}
		for _, name := range p.slots() {
			if _, sees := seen[name.Instance]; !sees {
				if !d.Seen.Gone(name.Instance) && p.unchanged() {
					return nil // not known yet
				}
				continue
			}
			device, err := d.device(ctx, name.Instance)
			if err == nil { // otherwise it is not given: its paths may not be allowed any more
				devices[name.Instance] = device
			}
		}
		err := d.describe(claim, p, devices)
		if err != nil { // a path has gone, say
			err = errors.Join(err, d.describe(claim, p, nil))
		}
		return err
	})
}
