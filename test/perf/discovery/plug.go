package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// taps is the Configuration of the devices that come and go: macvtap interfaces in the
// node's network namespace, with a character device each.
const taps = "taps"

// plugAll plugs devices in and out, one after the other.
func (b *bench) plugAll(ctx context.Context, r *result) error {
	if err := b.create(ctx, taps, "udev", `udevRules: ['SUBSYSTEM=="macvtap", KERNELS=="bench*"']`); err != nil {
		return err
	}
	if _, err := settle(ctx, b.cluster); err != nil {
		return err
	}
	instances, err := b.watchInstances(ctx)
	if err != nil {
		return err
	}
	defer instances.Stop()
	for i := range b.samples {
		// At any time of whatever is done from time to time.
		if err := pause(ctx, time.Duration(rand.Int64N(int64(time.Second)))); err != nil {
			return err
		}
		if err := b.plug(ctx, r, instances, fmt.Sprintf("bench%d", i)); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
	}
	progress("%d devices plugged in and out", b.samples)
	return nil
}

// plug plugs one device in and out.
func (b *bench) plug(ctx context.Context, r *result, instances watch.Interface, name string) error {
	free := func(want int) func(map[string]int) bool {
		return func(free map[string]int) bool { return free[taps] == want }
	}
	begin := time.Now()
	if _, err := b.cluster.AddMacvtap(nodeName, name); err != nil {
		return err
	}
	seen, err := next(ctx, instances, watch.Added)
	if err != nil {
		return err
	}
	r.plugged = append(r.plugged, seen.Sub(begin))
	if err := b.scheduler.awaitFree(ctx, "the scheduler has its slot", often, free(1)); err != nil {
		return err
	}
	r.scheduled = append(r.scheduled, time.Since(begin))
	if err := pause(ctx, time.Duration(rand.Int64N(int64(time.Second)))); err != nil {
		return err
	}
	begin = time.Now()
	if err := b.cluster.RemoveMacvtap(nodeName, name); err != nil {
		return err
	}
	if err := b.scheduler.awaitFree(ctx, "the scheduler has no slot of it", often, free(0)); err != nil {
		return err
	}
	r.unplugged = append(r.unplugged, time.Since(begin))
	if seen, err = next(ctx, instances, watch.Deleted); err != nil {
		return err
	}
	r.removed = append(r.removed, seen.Sub(begin))
	return nil
}

// watchInstances watches for the devices' Instances. Those of all others do not change.
func (b *bench) watchInstances(ctx context.Context) (watch.Interface, error) {
	list, err := b.client.AkriV0().Instances(namespace).List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return b.client.AkriV0().Instances(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
}

// next waits for an Instance of a device that is plugged in or out, and returns when.
func next(ctx context.Context, instances watch.Interface, kind watch.EventType) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		select {
		case e, ok := <-instances.ResultChan():
			now := time.Now()
			if !ok {
				return now, errors.New("the watch of Instances ended")
			}
			if in, is := e.Object.(*akriv0.Instance); is && e.Type == kind && in.Spec.ConfigurationName == taps {
				return now, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("no Instance was %s: %w", kind, ctx.Err())
		}
	}
}
