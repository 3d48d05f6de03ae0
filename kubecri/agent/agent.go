// Package agent reports what discovery handlers find on this node as the node's
// DeviceSlices.
//
// It has four parts, and imports run one way:
//
//   - the queue of Configurations (watch.go, configurations.go), whose one worker starts
//     and stops sessions;
//   - the registry of sessions (registry.go, session.go), each of which runs the sources of its
//     handler (discovery.go), on the nodes that discover (election.go), and what other
//     nodes report (reach.go);
//   - the state of a session, in package reports: what its sources have said, and what
//     comes of it with time, as functions of values;
//   - the writer of slices, package deviceslices. Everything is level-triggered: a report,
//     a change of a Configuration and an edit of a slice all only wake it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/kubecri/hostpaths"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/properties"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/wake"
)

// restarts paces a source that fails: after 1 s, doubled up to a minute, with jitter, for
// the nodes may all have lost the same thing.
var restarts = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 7, Cap: time.Minute}

// Config is what an Agent needs. All but SliceWritten, PropertyNamespaces, NoEndpoints, AllowedPaths,
// Grace, Metrics, ReachChanged, NotifyHolders and Held is required.
type Config struct {
	// NodeName is the node that this agent discovers for.
	NodeName string
	// Client writes DeviceSlices, and reads those of other nodes for Configurations
	// with spec.discovery.
	Client versioned.Interface
	// KubeClient reads the Secrets and ConfigMaps that discoveryProperties name, and
	// writes the Leases of Configurations with spec.discovery.
	KubeClient kubernetes.Interface
	// PropertyNamespaces are where discoveryProperties may refer to, besides the
	// Configuration's own namespace; AllNamespaces for anywhere.
	PropertyNamespaces []string
	// Configurations are those of all namespaces; Slices and Nodes need to hold no
	// more than this node's (field selectors spec.nodeName and metadata.name).
	// Whoever made the informers starts them, after New.
	Configurations akriinformers.ConfigurationInformer
	Slices         informers.DeviceSliceInformer
	Nodes          coreinformers.NodeInformer
	// SliceWritten is called with the name of each DeviceSlice that this node has made or updated.
	SliceWritten func(name string)
	// Registry has the sources of devices: the handlers in this process, and those that
	// register.
	Registry *discovery.Registry
	// NoEndpoints says that no handlers register, so that after the agent's start none is
	// waited for.
	NoEndpoints bool
	// AllowedPaths are those of the node that devices may have mounts and device nodes of.
	AllowedPaths hostpaths.Allowed
	// Grace is how long the devices of a source that stopped working stay; reports.DefaultGrace
	// when zero.
	Grace reports.Grace
	// Recorder writes Events about Configurations; its scheme must know them.
	Recorder record.EventRecorder
	Metrics  *metrics.Metrics
	// ReachChanged is called when Reached may have something new to say. It must not
	// block.
	ReachChanged func()
	// NotifyHolders is called when the device of an Instance has changed, or is gone, so
	// that the pods that use it here can be notified: reason is in CamelCase, message for
	// people. It must not block.
	NotifyHolders func(instance, reason, message string)
	// Held returns the Instances of which this node holds slots; false while that is not known.
	// Their devices stay in the node's slices when they are gone, as such. It must not block, nor
	// call the Agent.
	Held func() (instances map[string]bool, known bool)
}

func (c *Config) validate() error {
	var errs []error
	for what, missing := range map[string]bool{
		"NodeName":       c.NodeName == "",
		"Client":         c.Client == nil,
		"KubeClient":     c.KubeClient == nil,
		"Registry":       c.Registry == nil,
		"Configurations": c.Configurations == nil,
		"Slices":         c.Slices == nil,
		"Nodes":          c.Nodes == nil,
		"Recorder":       c.Recorder == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is missing", what))
		}
	}
	return errors.Join(errs...)
}

// Agent keeps the DeviceSlices of this node.
type Agent struct {
	config         Config
	configurations workqueue.TypedInterface[string] // names
	synced         []cache.InformerSynced
	properties     *properties.Reader
	discoveries    sync.WaitGroup
	began          time.Time // Run; set before there are sessions
	writer         *deviceslices.Writer
	// timed wakes who looks at what changes with time alone.
	timed   wake.Signal
	notices *notices

	registry
}

// New returns an agent, to be started with Run.
func New(config Config) (*Agent, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if config.Grace == (reports.Grace{}) {
		config.Grace = reports.DefaultGrace
	}
	if config.ReachChanged == nil {
		config.ReachChanged = func() {}
	}
	if config.NotifyHolders == nil {
		config.NotifyHolders = func(string, string, string) {}
	}
	a := &Agent{
		config:         config,
		configurations: workqueue.NewTyped[string](),
		properties:     properties.NewReader(config.KubeClient, config.PropertyNamespaces),
		timed:          wake.New(),
		registry:       registry{sessions: map[string]*session{}, changed: make(chan struct{})},
	}
	a.notices = newNotices(a.timed.Send)
	a.writer = deviceslices.New(deviceslices.Config{NodeName: config.NodeName, Client: config.Client,
		Slices: config.Slices, Wrote: config.SliceWritten, Node: a.node, State: a.state, Held: a.changesHeld})
	a.watch()
	return a, nil
}

// Run works until ctx ends and its handlers have returned. Slices stay as they are
// then: devices do not go away because the agent does.
func (a *Agent) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("agent")
	ctx = klog.NewContext(ctx, logger)
	var workers sync.WaitGroup
	defer a.discoveries.Wait() // after the worker that starts them has returned
	defer workers.Wait()
	defer a.configurations.ShutDown()

	if !cache.WaitForCacheSync(ctx.Done(), a.synced...) {
		return // ctx has ended
	}
	a.mu.Lock()
	a.ready, a.began = true, time.Now()
	a.announce()
	a.mu.Unlock()

	workers.Go(func() {
		for {
			name, shutdown := a.configurations.Get()
			if shutdown {
				return
			}
			a.reconcileConfiguration(ctx, name)
			a.configurations.Done(name)
		}
	})
	workers.Go(func() { a.writer.Run(ctx) })
	workers.Go(func() { a.passTime(ctx) })
	<-ctx.Done()
}

// registered is when all endpoints that a former life of the agent knew have had the time
// to register.
func (a *Agent) registered() time.Time {
	if a.config.NoEndpoints {
		return a.began
	}
	return a.began.Add(reports.Registering)
}

// sleep waits for d, or until ctx ends or the channel, if there is one, is closed or says something.
func sleep(ctx context.Context, d time.Duration, news ...<-chan struct{}) {
	news = append(news, nil)
	select {
	case <-time.After(d):
	case <-news[0]:
	case <-ctx.Done():
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
