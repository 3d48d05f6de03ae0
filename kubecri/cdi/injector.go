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

// Injector decides which devices containers are given by name.
type Injector struct {
	store   store
	runtime Runtime
	usable  atomic.Bool // as far as known
	retry   time.Duration
	ask     time.Duration // between two questions of Probe
}

// NewInjector keeps specs in dir. Until Probe has asked the runtime, nothing is
// given by name.
func NewInjector(dir string, runtime Runtime) *Injector {
	return &Injector{store: store{dir: dir}, runtime: runtime, retry: writeRetry, ask: probeRetry}
}

// Probe asks the runtime whether it resolves our names until it says, or ctx is done: to be called
// whenever it has come back, with another configuration perhaps.
func (i *Injector) Probe(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("cdi")
	var support Support
	err := wait.PollUntilContextCancel(ctx, i.ask, true, func(ctx context.Context) (said bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if support, err = Probe(ctx, i.runtime); err != nil {
			logger.V(2).Info("Cannot tell whether the runtime has CDI on, asking again", "reason", err)
		}
		return err == nil, nil
	})
	if err != nil { // ctx is done
		return
	}
	usable := support.On && reads(support.Dirs, i.store.dir)
	i.usable.Store(usable)
	if usable {
		logger.Info("Containers get devices by CDI name", "runtime", support.Runtime, "dir", i.store.dir)
		return
	}
	logger.Info("The runtime does not resolve CDI names of ours: containers get devices written out",
		"runtime", support.Runtime, "on", support.On, "why", support.Why, "reads", support.Dirs, "dir", i.store.dir)
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

// Device returns the name to request for an Instance's device, once its spec is
// there; "" when the device is to be written into the request.
func (i *Injector) Device(ctx context.Context, instance string, device discovery.Device) string {
	if !i.usable.Load() {
		return ""
	}
	if err := i.store.put(instance, device); err != nil {
		klog.FromContext(ctx).V(2).Info("Not by CDI name", "instance", instance, "reason", err)
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
		var retry <-chan time.Time
		err := errors.Join(append(failed, i.store.prune(source.Gone))...)
		if err != nil && !failing { // once an outage
			logger.Error(err, "Cannot bring CDI specs up to date: containers get devices written out, as good; "+
				"trying again", "every", i.retry)
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
