package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const namespace = metav1.NamespaceDefault

// bench is the cluster that is measured.
type bench struct {
	*options
	cluster   *cluster.Cluster
	client    versioned.Interface
	scheduler *scheduler
	apart     []string // handlers that run as processes of their own
}

// result is what was measured with the handlers at one place.
type result struct {
	created, until     time.Duration // from the first Configuration to the last, and to the scheduler having all slots
	load               writes        // until then, and what followed from it
	empty, full        usage         // kubecri's, without any device and with all
	handlers           usage         // of the processes of their own, with all devices
	emptyIdle, idle    float64       // CPU of kubecri, as a part of a core
	handlersIdle       float64
	idleWrites         writes
	plugged, scheduled []time.Duration // from a device being plugged in: Instance, the scheduler's slot
	unplugged, removed []time.Duration // from it being plugged out: no slot, no Instance
	restart            writes          // of kubecri killed and started again
}

func newBench(c *cluster.Cluster, o *options) (*bench, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	b := &bench{options: o, cluster: c}
	if b.client, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	b.scheduler, err = newScheduler(c)
	return b, err
}

// standalone moves the handlers from kubecri to processes of their own.
func (b *bench) standalone(ctx context.Context, programs string) error {
	if err := b.cluster.SetKubecriArgs(ctx, nodeName, "--discovery-handlers="); err != nil {
		return err
	}
	for _, name := range handlers {
		argv := []string{programs + "/" + name}
		if name == "debug-echo-discovery" { // or it watches /tmp, where others are busy
			argv = append(argv, "--availability-file="+b.cluster.Nodes()[0].HandlersDir+"/debug-echo-availability.txt")
		}
		if err := b.cluster.Run(cluster.Program{Name: name, On: nodeName, Argv: argv,
			Env: []string{"DISCOVERY_HANDLERS_DIRECTORY=" + b.cluster.Nodes()[0].HandlersDir, "DEBUG_ECHO_INSTANCES_SHARED=false"}}); err != nil {
			return err
		}
	}
	b.apart = handlers
	return nil
}

// pids are kubecri, and the handlers that are processes of their own.
func (b *bench) pids() (kubecri int, apart []int, err error) {
	if kubecri, err = b.cluster.PID(cluster.Kubecri, nodeName); err != nil {
		return 0, nil, err
	}
	for _, name := range b.apart {
		pid, err := b.cluster.PID(name, nodeName)
		if err != nil {
			return 0, nil, err
		}
		apart = append(apart, pid)
	}
	return kubecri, apart, nil
}

// measure does everything, on a node without devices, and leaves it so.
func (b *bench) measure(ctx context.Context) (r result, err error) {
	before, err := settle(ctx, b.cluster)
	if err != nil {
		return r, err
	}
	if r.emptyIdle, _, r.empty, _, err = b.watchIdle(ctx); err != nil {
		return r, err
	}
	progress("idle without devices: %.2f%% of a core", 100*r.emptyIdle)
	begin := time.Now()
	if err := b.createAll(ctx); err != nil {
		return r, err
	}
	r.created = time.Since(begin)
	if err := b.scheduler.awaitFree(ctx, "the scheduler has all slots", seldom, b.hasAll); err != nil {
		return r, err
	}
	r.until = time.Since(begin)
	after, err := settle(ctx, b.cluster)
	if err != nil {
		return r, err
	}
	r.load = after.since(before)
	progress("Configurations created after %s, all slots in the scheduler after %s; writes: %v", r.created, r.until, r.load)
	if r.idle, r.handlersIdle, r.full, r.handlers, err = b.watchIdle(ctx); err != nil {
		return r, err
	}
	idled, err := written(b.cluster)
	if err != nil {
		return r, err
	}
	r.idleWrites = idled.since(after)
	progress("idle with all devices: %.2f%% of a core; writes: %v", 100*r.idle, r.idleWrites)
	if err := b.plugAll(ctx, &r); err != nil {
		return r, err
	}
	if before, err = settle(ctx, b.cluster); err != nil {
		return r, err
	}
	if err := b.cluster.Restart(cluster.Kubecri, nodeName); err != nil {
		return r, err
	}
	if err := b.cluster.AwaitServing(ctx, cluster.Kubecri, nodeName); err != nil {
		return r, err
	}
	// A handler that is a process notices within 10 s and registers again.
	if err := pause(ctx, 30*time.Second); err != nil {
		return r, err
	}
	if after, err = settle(ctx, b.cluster); err != nil {
		return r, err
	}
	r.restart = after.since(before)
	progress("restart of kubecri: writes: %v", r.restart)
	if err := b.scheduler.awaitFree(ctx, "the scheduler has all slots after the restart", seldom, b.hasAll); err != nil {
		return r, err
	}
	return r, b.deleteAll(ctx)
}

// hasAll reports whether the free slots are of all devices. Two of six-digit names may
// meet, and then one of the devices is left out.
func (b *bench) hasAll(free map[string]int) bool {
	n := 0
	for configuration, slots := range free {
		if strings.HasPrefix(configuration, "sensors-") {
			n += slots
		}
	}
	return float64(n) >= 0.999*float64(b.devices)
}

// createAll creates the Configurations of all devices, one after the other.
func (b *bench) createAll(ctx context.Context) error {
	for i := range b.configurations {
		var descriptions []string
		for n := range b.devices / b.configurations {
			descriptions = append(descriptions, fmt.Sprintf("sensor-%d-%d", i, n))
		}
		if err := b.create(ctx, fmt.Sprintf("sensors-%d", i), "debugEcho", "shared: false\ndescriptions: ["+strings.Join(descriptions, ", ")+"]"); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) create(ctx context.Context, name, handler, details string) error {
	_, err := b.client.AkriV0().Configurations(namespace).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: handler, DiscoveryDetails: details}, Capacity: 1},
	}, metav1.CreateOptions{})
	return err
}

func (b *bench) deleteAll(ctx context.Context) error {
	err := b.client.AkriV0().Configurations(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return await(ctx, "all Instances are gone", seldom, func() error {
		list, err := b.client.AkriV0().Instances(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%s is there", list.Items[0].Name)
		}
		return err
	})
}

// watchIdle returns what kubecri, and the handlers that are processes, use of a core
// while nothing happens, and what they have at the end.
func (b *bench) watchIdle(ctx context.Context) (part, handlersPart float64, kubecri, handlers usage, err error) {
	pid, apart, err := b.pids()
	if err != nil {
		return 0, 0, usage{}, usage{}, err
	}
	read := func() (k, h usage, err error) {
		if k, err = use(pid); err == nil {
			h, err = use(apart...)
		}
		return k, h, err
	}
	k, h, err := read()
	begin := time.Now()
	if err == nil {
		err = pause(ctx, b.idle)
	}
	if err != nil {
		return 0, 0, usage{}, usage{}, err
	}
	seconds := time.Since(begin).Seconds()
	kubecri, handlers, err = read()
	return (kubecri.cpu - k.cpu) / seconds, (handlers.cpu - h.cpu) / seconds, kubecri, handlers, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
