package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// Our own programs run as deploy/ ships them: the units' command lines, the
// scheduler's configuration, the CRDs, RBAC and policies of the kustomization.
const (
	deployDir           = "deploy"
	schedulerUnit       = "deploy/systemd/kube-scheduler.service"
	controllerUnit      = "deploy/systemd/controller.service"
	kubecriUnit         = "deploy/systemd/kubecri.service"
	schedulerConfigFile = "deploy/kube-scheduler/config.yaml"
)

// ourPrograms maps the programs built from the repository to their packages.
func ourPrograms(cfg Config) map[string]string {
	programs := maps.Clone(build.Ours)
	if cfg.Stock || cfg.StockScheduler {
		delete(programs, Scheduler)
	}
	if cfg.Stock {
		delete(programs, Kubecri)
		delete(programs, Controller)
	}
	for name := range cfg.Binaries {
		delete(programs, name)
	}
	return programs
}

// unitProcess makes a process from a systemd unit of deploy/: its ExecStart= and
// environment, with the program's path replaced.
func unitProcess(repoRoot, unit, program string, vars map[string]string) (argv, env []string, err error) {
	argv, err = readUnit(filepath.Join(repoRoot, unit), vars)
	if err != nil {
		return nil, nil, err
	}
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return append([]string{program}, argv[1:]...), env, nil
}

func schedulerProcess(cfg Config, l layout, bin programs) (*process, error) {
	config := l.schedulerConfig()
	kubeconfig := l.kubeconfig(Scheduler)
	if err := renderSchedulerConfig(filepath.Join(cfg.RepoRoot, schedulerConfigFile), config, kubeconfig); err != nil {
		return nil, err
	}
	args := append([]string{
		"--devschedpath=" + l.schedulerPlugins(), "--plugin-sockets=" + l.pluginSockets()}, cfg.SchedulerArgs...)
	if cfg.Gangs {
		args = append(args, gangsGate)
	}
	argv, env, err := unitProcess(cfg.RepoRoot, schedulerUnit, bin[Scheduler], map[string]string{
		"KUBECONFIG": kubeconfig,
		"CONFIG":     config,

		"KUBE_SCHEDULER_ARGS": strings.Join(args, " "),
	})
	return &process{Component: Scheduler, NetNS: l.netNS(controlNS), Argv: argv, Env: env}, err
}

// StartScheduler starts a further scheduler, beside the one that Up started or
// instead of it, and returns when it serves. Its component's name begins with
// kube-scheduler; it listens on another port and gets further arguments, for
// example --leader-elect=false.
func (c *Cluster) StartScheduler(ctx context.Context, component string, port int, args ...string) error {
	if _, err := c.layout.process(component, ""); err == nil || !strings.HasPrefix(component, Scheduler+"-") {
		return fmt.Errorf("scheduler %q: want a new name that begins with %s-", component, Scheduler)
	}
	p, err := c.layout.process(Scheduler, "")
	if err != nil {
		return err
	}
	p.Component = component
	p.Argv = append(append(p.Argv, fmt.Sprintf("%s=%d", securePort, port)), args...)
	if err := c.layout.start(p); err != nil {
		return err
	}
	return c.AwaitServing(ctx, component, "")
}

// RemoveScheduler kills a scheduler of StartScheduler and forgets it. Its log stays.
func (c *Cluster) RemoveScheduler(component string) error {
	if !strings.HasPrefix(component, Scheduler+"-") {
		return fmt.Errorf("%q is not a further scheduler", component)
	}
	return c.RemoveProgram(component, "")
}

const securePort = "--secure-port"

// schedulerPort is where a scheduler listens.
func (c *Cluster) schedulerPort(component string) string {
	if p, err := c.layout.process(component, ""); err == nil {
		for _, arg := range p.Argv {
			if port, ok := strings.CutPrefix(arg, securePort+"="); ok {
				return port
			}
		}
	}
	return "10259"
}

// renderSchedulerConfig copies a KubeSchedulerConfiguration and points it at
// this cluster.
func renderSchedulerConfig(from, to, kubeconfig string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	connection, ok := config["clientConnection"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: no clientConnection to put the kubeconfig in", from)
	}
	connection["kubeconfig"] = kubeconfig
	return writeYAML(to, config)
}

// There is one controller and no other to elect: see controllerManagerProcess.
func controllerProcess(cfg Config, l layout, bin programs) (*process, error) {
	args := "--leader-elect=false --v=2"
	if cfg.StockScheduler {
		args += " --without-scheduler"
	}
	argv, env, err := unitProcess(cfg.RepoRoot, controllerUnit, bin[Controller], map[string]string{
		"KUBECONFIG":      l.kubeconfig(Controller),
		"CONTROLLER_ARGS": args,
	})
	return &process{Component: Controller, NetNS: l.netNS(controlNS), Argv: argv, Env: env}, err
}

func kubecriProcess(cfg Config, l layout, n Node, bin programs) (*process, error) {
	// Of debugEcho the e2e tests try every kind of injection.
	args := "--cridevices=" + n.DevicePluginDir + " --discovery-handlers-directory=" + n.HandlersDir +
		" --handler-allowed-paths=/dev,/run/udev,debugEcho=/dev,debugEcho=" + os.TempDir()
	if slices.Contains(cfg.NRI, n.Name) {
		args += " --mode=nri --nri-socket=" + n.nriSocket()
	}
	if slices.Contains(cfg.DevicePlugin, n.Name) {
		args += " --mode=device-plugin"
	}
	argv, env, err := unitProcess(cfg.RepoRoot, kubecriUnit, bin[Kubecri], map[string]string{
		"NODE_NAME":        n.Name,
		"KUBECONFIG":       l.kubeconfig(processID(Kubecri, n.Name)),
		"RUNTIME_ENDPOINT": "unix://" + n.ContainerdSocket,
		"LISTEN":           "unix://" + n.KubecriSocket,
		"STATE_DIR":        n.KubecriDir,
		"CDI_DIR":          n.CDIDir,
		"KUBECRI_ARGS":     args,
	})
	return &process{Component: Kubecri, Node: n.Name, NetNS: n.NetNS, MountNS: n.MountNS, Argv: argv, Env: env}, err
}

// SetKubecriArgs restarts a node's kubecri with further arguments, which are added
// to those that Up gave it, and returns when it serves. Without any, it has Up's again.
func (c *Cluster) SetKubecriArgs(ctx context.Context, node string, args ...string) error {
	i := slices.Index(c.cfg.Nodes, node)
	if i < 0 || c.cfg.Stock {
		return fmt.Errorf("the cluster has no node %q with a kubecri", node)
	}
	p, err := kubecriProcess(c.cfg, c.layout, c.Nodes()[i], c.programs)
	if err != nil {
		return err
	}
	p.Argv = append(p.Argv, args...)
	if err := c.Kill(Kubecri, node, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := c.layout.start(p); err != nil {
		return err
	}
	return c.AwaitServing(ctx, Kubecri, node)
}

// checkDeploy reports what the repository lacks before anything is created.
func checkDeploy(cfg Config) error {
	if cfg.Stock {
		return nil
	}
	var missing []string
	for _, file := range []string{filepath.Join(deployDir, "kustomization.yaml"), schedulerUnit, controllerUnit, kubecriUnit, schedulerConfigFile} {
		if _, err := os.Stat(filepath.Join(cfg.RepoRoot, file)); err != nil {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s; a cluster without our programs comes up with --stock", cfg.RepoRoot, strings.Join(missing, ", "))
	}
	return nil
}
