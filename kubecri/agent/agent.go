// Package agent turns what discovery handlers find on this node into Instances.
//
// It runs a Configuration's handler, and for each device keeps the Instance and
// this node's entry in its spec.nodes. Everything is level-triggered: a report,
// a change of a Configuration and an edit of an Instance all only queue a name,
// and the Instance is then compared with what desired() says it should be.
//
// Who changes what: the queue of Configurations has one worker, which alone
// starts and stops discovery; a discovery goroutine alone sets its kind's
// devices; the workers of the queue of Instances alone write to the API, where
// the resourceVersion settles races with other nodes and with claims.
package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
)

const (
	// instanceWorkers write Instances at the same time.
	instanceWorkers = 4

	// What failed is tried again after 50 ms, doubled up to 10 s: short enough
	// that an API server that returns finds its nodes soon.
	minRetry = 50 * time.Millisecond
	maxRetry = 10 * time.Second
)

// defaultRestart paces a handler that fails: after 1 s, doubled up to a minute.
var defaultRestart = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 7, Cap: time.Minute}

// Config is what an Agent needs. All but Handlers,
// PropertyNamespaces and Restart is required.
type Config struct {
	// NodeName is the node that this agent discovers for.
	NodeName string
	// Client writes Instances.
	Client versioned.Interface
	// KubeClient reads the Secrets and ConfigMaps that discoveryProperties name.
	KubeClient kubernetes.Interface
	// PropertyNamespaces are where discoveryProperties may refer to, besides the
	// Configuration's own namespace; AllNamespaces for anywhere.
	PropertyNamespaces []string
	// Configurations and Instances are informers of all namespaces. Whoever made
	// them starts them, after New.
	Configurations informers.ConfigurationInformer
	Instances      informers.InstanceInformer
	// Handlers are those there are from the start; see AddHandler.
	Handlers []discovery.Handler
	// Recorder writes Events about Configurations; its scheme must know them.
	Recorder record.EventRecorder
	// Restart paces handlers that fail.
	Restart wait.Backoff
}

func (c *Config) validate() error {
	var errs []error
	for what, missing := range map[string]bool{
		"NodeName":       c.NodeName == "",
		"Client":         c.Client == nil,
		"KubeClient":     c.KubeClient == nil,
		"Configurations": c.Configurations == nil,
		"Instances":      c.Instances == nil,
		"Recorder":       c.Recorder == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is missing", what))
		}
	}
	return errors.Join(errs...)
}

// Agent keeps the Instances of this node's devices.
type Agent struct {
	config         Config
	configurations workqueue.TypedRateLimitingInterface[string] // names
	instances      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	synced         []cache.InformerSynced
	duplicates     duplicates // the worker of configurations alone
	discoveries    sync.WaitGroup

	mu    sync.RWMutex
	ready bool             // the caches have synced
	kinds map[string]*kind // what is discovered, by Configuration name
	// changed is closed and replaced whenever ready or kinds, or anything in
	// them, changes: see WaitDevice.
	changed chan struct{}

	handlersMu    sync.Mutex
	handlers      map[string]discovery.Handler
	handlersAdded chan struct{} // closed and replaced by AddHandler
}

// New returns an agent, to be started with Run.
func New(config Config) (*Agent, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if config.Restart == (wait.Backoff{}) {
		config.Restart = defaultRestart
	}
	a := &Agent{
		config: config,
		configurations: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry)),
		instances: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minRetry, maxRetry)),
		duplicates:    duplicates{},
		kinds:         map[string]*kind{},
		changed:       make(chan struct{}),
		handlers:      map[string]discovery.Handler{},
		handlersAdded: make(chan struct{}),
	}
	for _, h := range config.Handlers {
		if err := a.AddHandler(h); err != nil {
			return nil, err
		}
	}
	if err := a.watch(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// AddHandler makes a handler available, also to Configurations that wait for
// one of its name. Safe for concurrent use.
func (a *Agent) AddHandler(h discovery.Handler) error {
	a.handlersMu.Lock()
	defer a.handlersMu.Unlock()
	if _, ok := a.handlers[h.Name()]; ok {
		return fmt.Errorf("agent: there is a discovery handler %q already", h.Name())
	}
	a.handlers[h.Name()] = h
	close(a.handlersAdded)
	a.handlersAdded = make(chan struct{})
	return nil
}

// handler returns the handler of the name, or nil and what is closed when
// another handler is added.
func (a *Agent) handler(name string) (discovery.Handler, <-chan struct{}) {
	a.handlersMu.Lock()
	defer a.handlersMu.Unlock()
	return a.handlers[name], a.handlersAdded
}

// Run works until ctx ends and its handlers have returned. Instances stay as
// they are then: devices do not go away because the agent does.
func (a *Agent) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("agent")
	ctx = klog.NewContext(ctx, logger)
	var workers sync.WaitGroup
	defer a.discoveries.Wait() // after the worker that starts them has returned
	defer workers.Wait()
	defer a.configurations.ShutDown()
	defer a.instances.ShutDown()

	if !cache.WaitForCacheSync(ctx.Done(), a.synced...) {
		return // ctx has ended
	}
	a.mu.Lock()
	a.ready = true
	a.announce()
	a.mu.Unlock()

	workers.Go(func() { work(ctx, a.configurations, a.reconcileConfiguration) })
	for range instanceWorkers {
		workers.Go(func() { work(ctx, a.instances, a.reconcileInstance) })
	}
	<-ctx.Done()
}

// announce wakes those who wait for a.changed. a.mu must be held.
func (a *Agent) announce() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// work reconciles one key after another until the queue is shut down.
func work[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], reconcile func(context.Context, K) error) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		switch err := reconcile(ctx, key); {
		case err == nil:
			queue.Forget(key)
		case ctx.Err() != nil: // not worth a word
		case errors.Is(err, errRaced):
			klog.FromContext(ctx).V(2).Info("Lost several races for an Instance, trying again", "reason", err.Error())
			queue.AddRateLimited(key)
		default:
			klog.FromContext(ctx).Error(err, "Trying again", "failures", queue.NumRequeues(key)+1)
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}
