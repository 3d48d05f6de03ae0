package claims

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A process that starts while the API server is away knows from the checkpoint which
// claims the node has, and what the devices behind them are: a container whose pod has
// the claims already can be created again. Once the API server has been read, the
// checkpoint is only written.

// saved is what the checkpoint said when the process started.
type saved struct {
	claims  map[slot.Name]*v1alpha1.SlotClaim
	devices map[string]checkpoint.Device
	since   time.Time // checkpoint.Checkpoint.MarkedSince; zero for a first start
	err     error     // why there is nothing, to be logged
}

// loadSaved reads the checkpoint of a former process on the node, if there is one.
func loadSaved(path, node string) saved {
	s := saved{claims: map[slot.Name]*v1alpha1.SlotClaim{}, devices: map[string]checkpoint.Device{}}
	if path == "" {
		return s
	}
	c, err := checkpoint.Load(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.err = err
		}
		return s
	}
	for _, claim := range c.Claims {
		name, err := slot.Parse(claim.Slot)
		if err == nil && claim.Spec.NodeName == node {
			s.claims[name] = &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: claim.Slot}, Spec: claim.Spec}
		}
	}
	s.since = c.MarkedSince
	if c.Devices != nil {
		s.devices = c.Devices
	}
	return s
}

// MarkedSince returns since when containers on this node are marked that device plugins
// give something: the first start of a kubecri that does, as the checkpoint has it.
func (c *Claims) MarkedSince() time.Time { return c.saved.since }

// Configuration returns the one that owns a name; nil for none. known is false while the
// API server has not been read; then the runtime is listed again as soon as it has been.
func (c *Claims) Configuration(name string) (owner *akriv0.Configuration, known bool) {
	c.asked.Store(true)
	if !c.isSynced() {
		return nil, false
	}
	return Owner(c.configurations(), name), true
}

// isSynced reports whether the API server has been read since the start.
func (c *Claims) isSynced() bool {
	return c.config.Claims.Informer().HasSynced() && c.config.Configurations.Informer().HasSynced() &&
		c.config.Nodes.Informer().HasSynced()
}

// savedHold reports whether the checkpoint has the claim of the slot as the pod needs it.
// It is asked only while the API server has not been read. Of a claim that may have been
// released meanwhile only the API server can tell.
func (c *Claims) savedHold(name slot.Name, spec v1alpha1.SlotClaimSpec) bool {
	return !c.isSynced() && same(c.saved.claims[name], spec) && c.saved.claims[name].Spec.ReleaseUnreachableAfter == nil
}

// savedAll reports whether the checkpoint has all claims that the container needs.
func (c *Claims) savedAll(r *Request) bool {
	for _, g := range r.Grants {
		if !c.savedHold(g.Slot, specOf(c.config.Node, r.Pod, r.Container, levelOf(g))) {
			return false
		}
	}
	return len(r.Grants) > 0
}

// CheckpointedDevice returns the device behind an Instance as containers were given it
// before this process started; false when there is none, when its device nodes may be
// another device's by now, or once the API server has been read, which knows better. It
// reads the file system.
func (c *Claims) CheckpointedDevice(ctx context.Context, instance string) (checkpoint.Device, bool) {
	if c.isSynced() {
		return checkpoint.Device{}, false
	}
	device, ok := c.saved.devices[instance]
	if !ok {
		return checkpoint.Device{}, false
	}
	if err := device.Unchanged(); err != nil {
		klog.FromContext(ctx).Info("Warning: a device in the checkpoint may be another by now: its containers wait for the API server", "instance", instance, "reason", err)
		return checkpoint.Device{}, false
	}
	return device, true
}

// checkpointLoop keeps the checkpoint as the claims are, from when they have been read
// until ctx is done.
func (c *Claims) checkpointLoop(ctx context.Context) {
	if c.config.Checkpoint == "" {
		return
	}
	logger := klog.FromContext(ctx)
	if c.saved.err != nil {
		logger.Error(c.saved.err, "The checkpoint cannot be used: until the API server has been read, no container with slots is created. It is written anew then")
	}
	select {
	case <-c.synced:
	case <-ctx.Done():
		return
	}
	failing := false
	backoff := crilist.Retries()
	for {
		err := c.writeCheckpoint()
		if err != nil && !failing { // once an outage
			logger.Error(err, "Cannot write the checkpoint: if kubecri starts again while the API server is away, containers with slots wait for it. Slots that are taken now are not released by releaseUnreachableAfter", "path", c.config.Checkpoint)
		}
		if err == nil && failing {
			logger.Info("Wrote the checkpoint again")
		}
		var retry <-chan time.Time
		if failing = err != nil; failing {
			retry = c.config.Clock.After(backoff.Step())
		} else {
			backoff = crilist.Retries()
		}
		select {
		case <-c.changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// writeCheckpoint makes the checkpoint say what is known now. It is for when the API server has been
// read. When it returns nil, the file is on the disk.
func (c *Claims) writeCheckpoint() error {
	c.checkpoint.Lock()
	defer c.checkpoint.Unlock()
	now := c.snapshot(c.checkpoint.devices)
	c.checkpoint.devices = now.Devices
	wrote, err := c.checkpoint.Write(now)
	if wrote || err != nil {
		c.config.Metrics.Checkpointed(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkpointError = err
	return err
}

// CheckpointError returns why the checkpoint could not be written when last tried; nil when
// it was, or need not be yet.
func (c *Claims) CheckpointError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkpointError
}

// checkpointSoon has the checkpoint written.
func (c *Claims) checkpointSoon() { c.changed.Send() }

// snapshot is what the checkpoint is to say. A device that is not seen now is as it was
// before.
func (c *Claims) snapshot(before map[string]checkpoint.Device) checkpoint.Checkpoint {
	now := checkpoint.Checkpoint{MarkedSince: c.saved.since, Devices: map[string]checkpoint.Device{}}
	// Before the claims are listed: a claim in that list may be deleted meanwhile, and not be going any more.
	going := maps.Collect(c.store.going.Range)
	for _, claim := range c.store.all() {
		name, err := claim.Slot()
		_, goes := going[claim.UID]
		use := c.containers.use(name)
		// All that a pod had goes in one write. The kubelet may keep some.
		goes = goes || c.config.Kubelet == nil && slices.Contains(use.freed, claim.Spec.Holder)
		// Of ResourceClaims the CDI specs say what they are prepared with.
		if err != nil || claim.Spec.ByDRA() || goes && !use.busy && len(use.held) == 0 {
			continue
		}
		now.Claims = append(now.Claims, checkpoint.Claim{Slot: claim.Name, Spec: claim.Spec})
		if _, has := now.Devices[name.Instance]; has {
			continue
		}
		if device, ok := c.seen(name.Instance); ok {
			now.Devices[name.Instance] = device
		} else if device, ok := before[name.Instance]; ok {
			now.Devices[name.Instance] = device
		}
	}
	for name, p := range c.fence.all() { // a claim that was deleted by somebody else, of a container that may run
		if c.store.get(name) == nil {
			now.Claims = append(now.Claims, checkpoint.Claim{Slot: name.String(), Spec: p.claim.Spec})
		}
	}
	slices.SortFunc(now.Claims, func(a, b checkpoint.Claim) int { return cmp.Compare(a.Slot, b.Slot) })
	return now
}

// seen returns the device behind an Instance as the node sees it now.
func (c *Claims) seen(instance string) (checkpoint.Device, bool) {
	device, ok := c.config.Device(instance)
	if !ok {
		return checkpoint.Device{}, false
	}
	configuration, _ := slot.SplitInstance(instance)
	handler := ""
	if owner := Owner(c.configurations(), configuration); owner != nil {
		handler = owner.Spec.DiscoveryHandler.Name
	}
	described, err := checkpoint.NewDevice(handler, device)
	return described, err == nil
}
