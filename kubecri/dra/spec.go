package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The CDI spec of a ResourceClaim says what its containers get, and an annotation of it what was prepared. The
// kubelet asks once, and the runtime reads the spec for each container that it creates: so the spec is written
// again when the devices change. Of a device that is gone it has nothing, and no container is created with it.

// preparedAnnotation has a preparedClaim as JSON.
const preparedAnnotation = v1alpha1.DRADriver + "/prepared"

// recorded returns what a ResourceClaim is prepared with; nil for nothing.
func (d *Driver) recorded(claim types.UID) (*preparedClaim, error) {
	annotations, err := d.CDI.ClaimAnnotations(claim)
	if err != nil || annotations == nil {
		return nil, err
	}
	p := &preparedClaim{}
	if err = json.Unmarshal([]byte(annotations[preparedAnnotation]), p); err == nil && len(p.Results) == 0 {
		err = errors.New("no results") // another version's
	}
	if err != nil {
		return nil, fmt.Errorf("CDI spec of ResourceClaim %s: annotation %s: %w", claim, preparedAnnotation, err)
	}
	return p, nil
}

// allRecorded returns what all ResourceClaims are prepared with, also with an error of specs that cannot be read.
func (d *Driver) allRecorded() (all []*preparedClaim, err error) {
	claims, err := d.CDI.Claims()
	errs := []error{err}
	for _, claim := range claims {
		p, err := d.recorded(claim)
		if errs = append(errs, err); p != nil {
			all = append(all, p)
		}
	}
	return all, errors.Join(errs...)
}

// describe writes the CDI spec of a ResourceClaim: a device for each request, with all that its slots bring; none
// for a request of which a device is not among the devices. Of a container with several requests one's
// AKRI_DEVICES wins, so that each has another of its name.
func (d *Driver) describe(p *preparedClaim, devices map[string]discovery.Device) error {
	grants, lacking := map[string][]inject.Grant{}, map[string]bool{}
	for _, r := range p.Results {
		device, is := devices[r.Instance]
		lacking[r.Request] = lacking[r.Request] || !is
		for _, index := range r.Held {
			grants[r.Request] = append(grants[r.Request], inject.Grant{Holder: p.holder(&r), Device: device,
				Slot:   slot.Name{Instance: r.Instance, Index: index},
				Broker: p.Broker == v1alpha1.DeviceConfiguration(r.Instance)})
		}
	}
	given := map[string]inject.Additions{}
	var nodes []discovery.DeviceSpec
	for request, of := range grants {
		if lacking[request] {
			continue
		}
		add, err := additions(request, of)
		if err != nil {
			return fmt.Errorf("request %s: %w", request, err)
		}
		given[request], nodes = add, append(nodes, add.Devices...)
	}
	var err error
	if p.Nodes, err = checkpoint.NewDevice("", discovery.Device{DeviceSpecs: nodes}); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return d.CDI.PutClaim(p.UID, given, map[string]string{preparedAnnotation: string(text)})
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

// describeAgain has all specs say what the devices are now. An error of one stops no other.
func (d *Driver) describeAgain(ctx context.Context) error {
	seen, _ := d.Seen.Devices()
	all, err := d.allRecorded()
	errs := []error{err}
	for _, p := range all {
		errs = append(errs, d.alone(ctx, p.UID, func(ctx context.Context) error {
			p, err := d.recorded(p.UID)
			if err != nil || p == nil || p.Revoked { // it was unprepared meanwhile, or is to be
				return err
			}
			return d.describeAs(ctx, p, seen)
		}))
	}
	return errors.Join(errs...)
}

// describeAs has the spec of a ResourceClaim say what its devices are, of those that the node sees.
func (d *Driver) describeAs(ctx context.Context, p *preparedClaim, seen map[string]discovery.Device) error {
	devices := map[string]discovery.Device{}
	for _, r := range p.Results {
		if _, sees := seen[r.Instance]; !sees {
			if !d.Seen.Gone(r.Instance) && p.Nodes.Unchanged() == nil {
				return nil // not known yet
			}
			continue
		}
		device, err := d.Device(ctx, r.Instance)
		if err == nil { // otherwise it is not given: its paths may not be allowed any more
			devices[r.Instance] = device
		}
	}
	err := d.describe(p, devices)
	if err != nil { // a path has gone, say
		err = errors.Join(err, d.describe(p, nil))
	}
	return err
}
