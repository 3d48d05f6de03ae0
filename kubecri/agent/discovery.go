package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// kind is one Configuration under discovery. Its fields are guarded by
// Agent.mu; maps are replaced, never changed.
type kind struct {
	name, namespace string // the Configuration's; never change
	stop            context.CancelFunc
	// configuration is the newest version seen.
	configuration *v0.Configuration
	// reported is false until the handler has reported for the first time: until
	// then nothing is known, and nothing may be taken away.
	reported bool
	devices  map[string]found // by Instance
	// problem is what keeps discovery from working, as last told.
	problem string
	// rejected says which devices of the last report were left out.
	rejected string
}

// startDiscovery runs the Configuration's handler until stopped.
func (a *Agent) startDiscovery(ctx context.Context, configuration *v0.Configuration) *kind {
	logger := klog.FromContext(ctx).WithValues(
		"configuration", klog.KObj(configuration), "handler", configuration.Spec.DiscoveryHandler.Name)
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logger))
	k := &kind{name: configuration.Name, namespace: configuration.Namespace, configuration: configuration, stop: stop}
	a.discoveries.Go(func() { a.discover(ctx, k, configuration.Spec.DiscoveryHandler) })
	return k
}

// discover keeps the handler running, and waits for one when there is none.
func (a *Agent) discover(ctx context.Context, k *kind, info v0.DiscoveryHandlerInfo) {
	restart := a.config.Restart
	for ctx.Err() == nil {
		handler, added := a.handler(info.Name)
		if handler == nil {
			a.tellProblem(ctx, k, "UnknownHandler", fmt.Errorf(
				"no discovery handler %q on this node: discovery starts when there is one", info.Name))
			select {
			case <-added:
			case <-ctx.Done():
			}
			continue
		}
		started := time.Now()
		err := a.runHandler(ctx, k.namespace, info, handler, func(result discovery.Result) { a.take(ctx, k, result) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > a.config.Restart.Cap { // a new failure, not one that goes on
			restart = a.config.Restart
			a.forgetProblem(k)
		}
		a.tellProblem(ctx, k, "DiscoveryFailed", fmt.Errorf("discovery handler %q: %w", info.Name, err))
		select {
		case <-time.After(restart.Step()):
		case <-ctx.Done():
		}
	}
}

// runHandler calls the handler once; it returns an error in any case. A panic
// is one: this process is also the node's container runtime endpoint, which a
// malformed answer from some device must not take down.
func (a *Agent) runHandler(ctx context.Context, namespace string, info v0.DiscoveryHandlerInfo, handler discovery.Handler, report func(discovery.Result)) (err error) {
	properties, err := resolve(ctx, a.config.KubeClient, readable{own: namespace, others: a.config.PropertyNamespaces}, info.DiscoveryProperties)
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			klog.FromContext(ctx).Error(err, "The discovery handler has a bug", "stack", string(debug.Stack()))
		}
	}()
	// What reports after its time may be a handler that lost sight of its devices
	// because it was told to stop.
	request := discovery.Request{Details: info.DiscoveryDetails, Properties: properties}
	err = handler.Discover(ctx, request, func(result discovery.Result) {
		if ctx.Err() == nil {
			report(result)
		}
	})
	if err == nil {
		err = errors.New("ended, though it should go on")
	}
	return err
}

// take makes a report what is known of the kind's devices.
func (a *Agent) take(ctx context.Context, k *kind, result discovery.Result) {
	devices, rejected := examine(k.name, result, a.config.NodeName)
	a.mu.Lock()
	if a.kinds[k.name] != k { // stopped meanwhile
		a.mu.Unlock()
		return
	}
	configuration := k.configuration
	gone := k.devices
	unchanged := k.reported && equalDevices(gone, devices)
	tellRejected := len(rejected) > 0 && summary(rejected) != k.rejected
	k.reported, k.devices, k.rejected = true, devices, summary(rejected)
	if !unchanged {
		a.announce()
	}
	a.mu.Unlock()

	logger := klog.FromContext(ctx)
	if tellRejected {
		logger.Info("Left out devices that the handler reported", "count", len(rejected), "reason", summary(rejected))
		a.config.Recorder.Eventf(configuration, corev1.EventTypeWarning, "DevicesRejected",
			"Node %s leaves out %d devices: %s", a.config.NodeName, len(rejected), summary(rejected))
	}
	if unchanged {
		return
	}
	logger.Info("The handler reported devices", "count", len(devices))
	for instance := range gone {
		a.instances.Add(keyOf(configuration, instance))
	}
	if err := a.queueInstances(k.name); err != nil {
		a.configurations.AddRateLimited(k.name) // looks at all its Instances, too
	}
}

// tellProblem logs, and writes as an Event, what keeps discovery from working:
// once until it changes, or is over.
func (a *Agent) tellProblem(ctx context.Context, k *kind, reason string, err error) {
	a.mu.Lock()
	known := k.problem == err.Error()
	k.problem = err.Error()
	configuration := k.configuration
	a.announce() // WaitDevice says what it waits for
	a.mu.Unlock()
	if known {
		klog.FromContext(ctx).V(2).Info("Discovery still does not work", "reason", err.Error())
		return
	}
	klog.FromContext(ctx).Error(err, "Discovery does not work")
	a.config.Recorder.Eventf(configuration, corev1.EventTypeWarning, reason, "Node %s: %v", a.config.NodeName, err)
}

func (a *Agent) forgetProblem(k *kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k.problem = ""
}
