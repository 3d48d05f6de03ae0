package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a cluster that is up. Its methods may be called concurrently, but
// for those that start and stop the same component.
type Cluster struct {
	cfg      Config
	layout   layout
	programs programs
}

// saved is what Attach reads back.
type saved struct {
	Name       string            `json:"name"`
	Nodes      []string          `json:"nodes"`
	Stock      bool              `json:"stock,omitempty"`
	APIOnly    bool              `json:"apiOnly,omitempty"`
	NRI        []string          `json:"nri,omitempty"`
	RepoRoot   string            `json:"repoRoot"`
	Binaries   map[string]string `json:"binaries,omitempty"`
	BuildFlags []string          `json:"buildFlags,omitempty"`
	Versions   Versions          `json:"versions,omitzero"`
	Programs   programs          `json:"programs"`
}

func (c *Cluster) save() error {
	data, err := json.MarshalIndent(saved{
		Name: c.cfg.Name, Nodes: c.cfg.Nodes, Stock: c.cfg.Stock, APIOnly: c.cfg.APIOnly, NRI: c.cfg.NRI, RepoRoot: c.cfg.RepoRoot,
		Binaries: c.cfg.Binaries, BuildFlags: c.cfg.BuildFlags, Versions: c.cfg.Versions, Programs: c.programs,
	}, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(c.layout.saved(), data)
}

// Attach returns the cluster that cfg's Name and StateDir point at, as another
// process brought it up. It does not check that everything runs; see Status.
func Attach(cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := layout{cfg.StateDir}
	data, err := os.ReadFile(l.saved())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no cluster in %s: bring it up first", l.dir)
	}
	if err != nil {
		return nil, err
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", l.saved(), err)
	}
	cfg.Name, cfg.Nodes, cfg.Stock, cfg.NRI, cfg.RepoRoot = s.Name, s.Nodes, s.Stock, s.NRI, s.RepoRoot
	cfg.Binaries, cfg.BuildFlags, cfg.APIOnly, cfg.Versions = s.Binaries, s.BuildFlags, s.APIOnly, s.Versions
	return &Cluster{cfg: cfg, layout: l, programs: s.Programs}, nil
}

// Down takes the cluster away; see the function Down.
func (c *Cluster) Down(ctx context.Context) error { return Down(ctx, c.cfg) }

// Config returns the cluster's configuration, defaults filled in.
func (c *Cluster) Config() Config { return c.cfg }

// Nodes lists the nodes in the order of Config.Nodes.
func (c *Cluster) Nodes() []Node { return c.layout.nodes(c.cfg.Nodes) }

// Kubeconfig is the admin's kubeconfig, usable from the host.
func (c *Cluster) Kubeconfig() string { return c.layout.kubeconfig("admin") }

// ComponentKubeconfig is the kubeconfig of a component, with its least
// privileges. It leads to the API server inside the cluster's namespaces; to use
// it from the host, replace the server by RESTConfig's.
func (c *Cluster) ComponentKubeconfig(component, node string) string {
	return c.layout.kubeconfig(processID(component, node))
}

// RESTConfig is the admin's client configuration, usable from the host.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
}

// BinDir holds links to every program of the cluster, kubectl among them.
func (c *Cluster) BinDir() string { return c.layout.bin() }

// SchedulerPluginDir is the scheduler's --devschedpath, empty at first. To load what
// is put there, restart the scheduler.
func (c *Cluster) SchedulerPluginDir() string { return c.layout.schedulerPlugins() }

// SchedulerPluginSockets is the scheduler's --plugin-sockets, empty at first.
func (c *Cluster) SchedulerPluginSockets() string { return c.layout.pluginSockets() }

// AuditLog is the API server's audit log: one JSON audit.k8s.io/v1 Event a line,
// level Metadata, writes only. A write is in it when its caller has the answer.
func (c *Cluster) AuditLog() string { return c.layout.auditLog() }

// SchedulerConfig is our scheduler's --config file, which it reads when it starts.
func (c *Cluster) SchedulerConfig() string { return c.layout.schedulerConfig() }

// LogPath is where a component's output goes. node is empty for components of
// the control plane.
func (c *Cluster) LogPath(component, node string) string { return c.layout.logOf(component, node) }

// Kubectl runs the cluster's kubectl as the admin and returns its standard
// output. An error holds the arguments and standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.programs["kubectl"], args...)
	// kubectl finds its plugin kubeslot on the PATH.
	cmd.Env = append(inheritedEnv(), "PATH="+c.BinDir()+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(c.layout.dir, "kubectl-cache"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Dial connects from inside a node's network namespace, or with an empty node
// from the control plane's: for metrics and health ports. The address must hold
// an IP.
func (c *Cluster) Dial(ctx context.Context, node, network, address string) (net.Conn, error) {
	if node == "" {
		node = controlNS
	}
	return dialInNetNS(ctx, c.layout.netNS(node), network, address)
}

// Listen listens inside a node's network namespace, or with an empty node the control
// plane's: for a server of a test's own. The address must hold an IP.
func (c *Cluster) Listen(ctx context.Context, node, network, address string) (l net.Listener, err error) {
	if node == "" {
		node = controlNS
	}
	err = inNetNS(c.layout.netNS(node), func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return l, err
}

// Partition cuts a node's network cable: to the control plane and to the other
// nodes. Heal plugs it in again. The node's processes run on.
func (c *Cluster) Partition(node string) error { return c.plug(node, false) }

// Heal undoes Partition.
func (c *Cluster) Heal(node string) error { return c.plug(node, true) }

func (c *Cluster) plug(node string, up bool) error {
	i := slices.Index(c.cfg.Nodes, node)
	if i < 0 {
		return fmt.Errorf("the cluster has no node %q", node)
	}
	return setPort(c.layout, port(i+1), up)
}

// MakeMountPoints makes directories on the machine, where they are missing, for nodes to
// mount over. They are gone when the last cluster is.
func (c *Cluster) MakeMountPoints(ctx context.Context, dirs ...string) error {
	return hostMountPoints.make(ctx, c.layout.dir, dirs...)
}

// PID returns a component's process id. It is an error when it does not run.
func (c *Cluster) PID(component, node string) (int, error) {
	p, err := c.layout.process(component, node)
	if err != nil {
		return 0, err
	}
	if !p.Started.alive() {
		return 0, fmt.Errorf("%s (pid %d): %w", p, p.Started.PID, os.ErrProcessDone)
	}
	return p.Started.PID, nil
}

// Kill sends a signal to a component. After SIGKILL it returns when the process
// is gone, after SIGSTOP when each of its threads has stopped.
func (c *Cluster) Kill(component, node string, signal syscall.Signal) error {
	p, err := c.layout.process(component, node)
	if err != nil {
		return err
	}
	if err := p.Started.signal(signal); err != nil {
		return fmt.Errorf("send %s to %s (pid %d): %w", signal, p, p.Started.PID, err)
	}
	var done func() bool
	switch signal {
	case syscall.SIGKILL:
		done = func() bool { return !p.Started.alive() }
	case syscall.SIGSTOP:
		done = p.Started.stopped
	default:
		return nil
	}
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s (pid %d) goes on after %s", p, p.Started.PID, signal)
		}
	}
	return nil
}

// errRuns is in the error of Start for a component that has not ended.
var errRuns = errors.New("runs already")

// Start starts a component that has ended, with the same arguments. It does not
// wait until the component is ready.
func (c *Cluster) Start(component, node string) error {
	p, err := c.layout.process(component, node)
	if err != nil {
		return err
	}
	if p.Started.alive() {
		return fmt.Errorf("%s %w, pid %d", p, errRuns, p.Started.PID)
	}
	return c.layout.start(p)
}

// Restart is Kill with SIGKILL, if the component runs, and Start.
func (c *Cluster) Restart(component, node string) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := c.Kill(component, node, syscall.SIGKILL)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		// Of some 200 processes that were killed a moment after their start one was found alive here.
		if err = c.Start(component, node); !errors.Is(err, errRuns) || time.Now().After(deadline) {
			return err
		}
	}
}
