package cdi

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// probeTimeout bounds the question whether CDI is on, and probeRetry is between two: containerd
	// answers nothing until it has read what it runs.
	probeTimeout, probeRetry = 10 * time.Second, time.Second
	// writeRetry is between attempts to write files that could not be written.
	writeRetry = 10 * time.Second
	// readWithin is how soon a runtime has read a file that has changed: it follows the directory, and until then it
	// gives what the file said before, which may be another device's nodes by now. Of one that is new it has nothing.
	readWithin = 5 * time.Second
)

// defaultDirs are read by runtimes that do not say what they read. Never changed.
var defaultDirs = []string{"/etc/cdi", "/var/run/cdi"}

// Devices is who knows the node's devices.
type Devices interface {
	// Devices returns those that the node sees, by Instance, and what is closed
	// when they may have changed.
	Devices() (map[string]discovery.Device, <-chan struct{})
	// Gone reports whether the node is known not to see an Instance's device.
	Gone(instance string) bool
}

// Injector decides which devices containers are given by name; a nil one gives none.
type Injector struct {
	store   store
	runtime Runtime
	usable  atomic.Bool // as far as known
	retry   time.Duration
	ask     time.Duration // between two questions to the runtime
	claims  func(context.Context) error
}

// DescribeClaims has Run call describe, too, when the devices may have changed. It is to be called before Run.
func (i *Injector) DescribeClaims(describe func(context.Context) error) { i.claims = describe }

// NewInjector keeps specs in dir. While Follow does not know of the runtime, nothing is
// given by name.
func NewInjector(dir string, runtime Runtime) *Injector {
	return &Injector{store: store{dir: dir, changed: map[string]time.Time{}}, runtime: runtime, retry: writeRetry,
		ask: probeRetry}
}

// Follow has Device go by what the runtime says until ctx is done: to be called whenever the runtime has come back,
// with another configuration perhaps, and until it has gone.
func (i *Injector) Follow(ctx context.Context) {
	support, usable, err := i.probe(ctx)
	if err != nil { // ctx is done
		return
	}
	how := "Containers get devices by CDI name"
	if !usable {
		how = "No CDI names of ours are resolved: devices are written out, and no ResourceClaim is prepared"
	}
	logger := klog.FromContext(ctx).WithName("cdi")
	logger.Info(how, "runtime", support.Runtime, "why", support.Why, "reads", support.Dirs, "dir", i.store.dir)
	i.usable.Store(usable)
	defer i.usable.Store(false)
	<-ctx.Done()
}

// probe asks the runtime whether it resolves our names until it says, or ctx is done.
func (i *Injector) probe(ctx context.Context) (support Support, usable bool, err error) {
	err = wait.PollUntilContextCancel(ctx, i.ask, true, func(ctx context.Context) (said bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if support, err = Probe(ctx, i.runtime); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot tell whether the runtime has CDI on, asking again", "reason", err)
		}
		return err == nil, nil
	})
	return support, err == nil && support.On && reads(support.Dirs, i.store.dir), err
}

// reads reports whether the directory is among dirs.
func reads(dirs []string, dir string) bool {
	real := func(path string) string { // /var/run is a link
		path = filepath.Clean(path)
		if resolved, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			return filepath.Join(resolved, filepath.Base(path))
		}
		return path
	}
	return slices.ContainsFunc(dirs, func(d string) bool { return real(d) == real(dir) })
}

// Device returns the name to request for an Instance's device, once its spec is there, and the runtime has
// none of before; "" when the device is to be written into the request.
func (i *Injector) Device(ctx context.Context, instance string, device discovery.Device) string {
	if i == nil || !i.usable.Load() {
		return ""
	}
	if err := i.store.put(instance, device); err != nil {
		klog.FromContext(ctx).V(2).Info("Not by CDI name", "instance", instance, "reason", err)
		return ""
	}
	if !i.store.settled(i.store.path(instance)) {
		return ""
	}
	return Name(instance)
}

// Run keeps the specs of all devices until ctx is done. They stay then: containers
// that are created meanwhile may need them.
func (i *Injector) Run(ctx context.Context, source Devices) {
	logger := klog.FromContext(ctx).WithName("cdi")
	failing := false
	for {
		devices, changed := source.Devices()
		var failed []error
		for instance, device := range devices {
			err := i.store.put(instance, device)
			if errors.As(err, &notDescribed{}) {
				logger.V(2).Info("No CDI spec for a device", "instance", instance, "reason", err)
			} else if err != nil {
				failed = append(failed, err)
			}
		}
		failed = append(failed, i.store.prune(source.Gone))
		if i.claims != nil {
			failed = append(failed, i.claims(ctx))
		}
		var retry <-chan time.Time
		err := errors.Join(failed...)
		if err != nil && !failing && ctx.Err() == nil { // once an outage
			logger.Error(err, "Cannot bring CDI specs up to date: containers get devices written out, as good, and of "+
				"ResourceClaims as they were, or not; trying again", "every", i.retry)
		}
		if failing = err != nil; failing {
			retry = time.After(i.retry)
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}
