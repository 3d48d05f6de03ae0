package soplugins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// DefaultTimeout is how long a call may take. The kubelet waits two minutes
	// for a container (runtimeRequestTimeout), and there may be several plugins.
	DefaultTimeout = 30 * time.Second

	// DefaultInterval is how often plugins are asked what the node has.
	DefaultInterval = time.Minute

	// settle is how long a plugin may fail before what the node has said of it is
	// taken back: so long a start may take that the driver is loaded meanwhile.
	settle = 30 * time.Second

	minRetry = time.Second
	maxRetry = time.Minute
)

// Config configures Plugins; Node and Loaded are required.
type Config struct {
	Node string
	// Loaded are the plugins of .so files, in the order in which they are called.
	Loaded []load.Plugin[device.Device]
	// Remote says where plugins may be that are processes of their own; without Sockets there are none.
	Remote remote.Options
	// known waits until each of those that serves already was added, or ctx is done; nil without Sockets.
	known func(ctx context.Context)
	// NotLoaded says of each file that could not be loaded which it is, and why, for the
	// pods that may need it.
	NotLoaded []string
	// Labels, if set, returns the Node's labels; it waits until they are known, or ctx is done.
	Labels func(ctx context.Context) (labels map[string]string, known bool)
	// Holders, if set, returns the containers of the node that were assigned anything of device
	// plugins; not ok while that is not known.
	Holders func() (holders []*v1alpha1.Holder, ok bool)
	// Timeout of a call is DefaultTimeout when 0, Interval DefaultInterval.
	Timeout, Interval time.Duration
	// Changed is called, if set, when NodeInfo or NodeLabels may have something new to say.
	Changed func()
	// Events, if set, take what happens to the plugins, as Events of the node, and to devices that
	// pods hold, as Events of the pods.
	Events  record.EventRecorder
	Metrics *metrics.Metrics
}

// Plugins are the device plugins of a node. Safe for concurrent use; for Tried,
// Gives, Allocate and Withhold, nil is a node without any.
type Plugins struct {
	config  Config
	made    time.Time
	sockets *remote.Sockets // nil for none

	mu sync.Mutex
	// list has those of .so files first, then the others by name. It is replaced, never changed.
	list []*plugin
	// drives starts to drive a plugin; nil while Run does not run.
	drives func(*plugin)
}

// plugin is a device plugin and what is known of it.
type plugin struct {
	*caller
	// file is where it comes from: the .so file, or the directory of its socket.
	file string
	// wake, if not nil, has it asked now.
	wake wake.Signal

	mu sync.Mutex
	// own are the variables that belong to it; see Withhold.
	own inject.Edits
	// tried is closed when it was started and asked for the first time.
	tried chan struct{}
	// prepared and started say how far New and Start have come.
	prepared, started bool
	// data is what it said of the node last; nil for nothing yet. Never changed.
	data *types.NodeInfo
	// labels are those that it wanted on the Node last; nil for not said yet. Never changed.
	labels map[string]string
	// losses have their Events. Only drive uses them.
	losses map[loss]bool
	// wrong is the fault of its last start or update, nil when that went well, and
	// failing when it first failed since.
	wrong   *Fault
	failing time.Time
	// lapsed is set when it has no data and has failed for so long that what the
	// node said of it before this process is not to be kept.
	lapsed bool
}

// New makes Plugins, which Run starts.
func New(config Config) (*Plugins, error) {
	if config.Node == "" {
		return nil, errors.New("device plugins: Node is missing")
	}
	if config.Timeout < 0 || config.Interval < 0 {
		return nil, errors.New("device plugins: Timeout and Interval must not be negative")
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	if config.Interval == 0 {
		config.Interval = DefaultInterval
	}
	if config.Changed == nil {
		config.Changed = func() {}
	}
	p := &Plugins{config: config, made: time.Now()}
	for _, loaded := range config.Loaded {
		plugin := p.newPlugin(loaded.Name, loaded.File, loaded.Value)
		plugin.own = ownVariables(context.Background(), plugin, loaded.Value, &config)
		p.list = append(p.list, plugin)
	}
	if config.Remote.Sockets == "" {
		return p, nil
	}
	var err error
	p.sockets, err = remote.New(remote.Config{Options: config.Remote, Half: registration.Half_DEVICE, Added: p.added})
	p.config.known = p.sockets.Known
	return p, err
}

func (p *Plugins) newPlugin(name, file string, d device.Device) *plugin {
	numbers := p.config.Metrics.SOPlugin(name, methods, kinds)
	return &plugin{file: file, tried: make(chan struct{}), caller: newCaller(name, d, p.config.Timeout, numbers)}
}

// all are the plugins there are now, in their order.
func (p *Plugins) all() []*plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list
}

// Run starts the plugins and keeps asking them until ctx is done. It does not
// wait for calls that hang.
func (p *Plugins) Run(ctx context.Context) {
	var running sync.WaitGroup
	p.mu.Lock()
	p.drives = func(plugin *plugin) { running.Go(func() { p.drive(ctx, plugin) }) }
	for _, plugin := range p.list {
		p.drives(plugin)
	}
	p.mu.Unlock()
	if p.sockets != nil {
		running.Go(func() { p.sockets.Run(ctx) })
	}
	if p.config.known != nil {
		settled := time.AfterFunc(settle-time.Since(p.made), p.config.Changed) // see NodeInfo
		defer settled.Stop()
	}
	<-ctx.Done()
	p.mu.Lock()
	p.drives = nil
	p.mu.Unlock()
	running.Wait()
}

// Tried waits until every plugin was started and asked once, or failed at it, or
// ctx is done. Nobody waits for one that is not required.
func (p *Plugins) Tried(ctx context.Context) {
	if p == nil {
		return
	}
	if p.config.known != nil {
		p.config.known(ctx)
	}
	for _, plugin := range p.all() {
		if plugin.optional() {
			continue
		}
		select {
		case <-plugin.tried:
		case <-ctx.Done():
			return
		}
	}
}

// Failing returns what is wrong with the plugins, nil for nothing. That one is away that is
// not required is not wrong.
func (p *Plugins) Failing() error {
	var wrong []string
	for _, plugin := range p.all() {
		plugin.mu.Lock()
		fault, since, started := plugin.wrong, plugin.failing, plugin.started
		plugin.mu.Unlock()
		switch out := plugin.unavailable(); {
		case isAway(out) && plugin.optional():
		case isAway(out):
			wrong = append(wrong, out.Error())
		case out != nil:
			wrong = append(wrong, fmt.Sprintf("device plugin %q: %v", plugin.name, out))
		case fault != nil:
			wrong = append(wrong, fmt.Sprintf("%v, for %s", fault, time.Since(since).Round(time.Second)))
		case !started:
			wrong = append(wrong, fmt.Sprintf("device plugin %q has not started yet", plugin.name))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

// NodeReference is what events of a node are about. The kubelet's have the name for UID
// too, and `kubectl describe node` looks for that.
func NodeReference(node string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: apitypes.UID(node)}
}
