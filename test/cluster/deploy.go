package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Our own programs run as deploy/ ships them: the units' command lines, the
// scheduler's configuration, the CRDs, RBAC and policies of the kustomization.
const (
	deployDir           = "deploy"
	schedulerUnit       = "deploy/systemd/kube-scheduler.service"
	kubecriUnit         = "deploy/systemd/kubecri.service"
	schedulerConfigFile = "deploy/kube-scheduler/config.yaml"
)

// ourPrograms maps the programs built from the repository to their packages.
func ourPrograms(cfg Config) map[string]string {
	programs := map[string]string{
		"forward":   "./test/cluster/forward",
		"noseccomp": "./test/cluster/noseccomp",
	}
	if !cfg.Stock {
		programs[Scheduler] = "./kube-scheduler/cmd/kube-scheduler"
		programs[Kubecri] = "./kubecri/cmd/kubecri"
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
	config := filepath.Join(l.config(), "kube-scheduler.yaml")
	kubeconfig := l.kubeconfig(Scheduler)
	if err := renderSchedulerConfig(filepath.Join(cfg.RepoRoot, schedulerConfigFile), config, kubeconfig); err != nil {
		return nil, err
	}
	argv, env, err := unitProcess(cfg.RepoRoot, schedulerUnit, bin[Scheduler], map[string]string{
		"KUBECONFIG": kubeconfig,
		"CONFIG":     config,
	})
	return &process{Component: Scheduler, NetNS: l.netNS(controlNS), Argv: argv, Env: env}, err
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

func kubecriProcess(cfg Config, l layout, n Node, bin programs) (*process, error) {
	argv, env, err := unitProcess(cfg.RepoRoot, kubecriUnit, bin[Kubecri], map[string]string{
		"NODE_NAME":        n.Name,
		"KUBECONFIG":       l.kubeconfig(processID(Kubecri, n.Name)),
		"RUNTIME_ENDPOINT": "unix://" + n.ContainerdSocket,
		"LISTEN":           "unix://" + n.KubecriSocket,
		"STATE_DIR":        n.KubecriDir,
		"CDI_DIR":          n.CDIDir,
		// The e2e tests try every kind of injection.
		"KUBECRI_ARGS": "--debug-echo-host-access",
	})
	return &process{Component: Kubecri, Node: n.Name, NetNS: n.NetNS, MountNS: n.MountNS, Argv: argv, Env: env}, err
}

// checkDeploy reports what the repository lacks before anything is created.
func checkDeploy(cfg Config) error {
	if cfg.Stock {
		return nil
	}
	var missing []string
	for _, file := range []string{filepath.Join(deployDir, "kustomization.yaml"), schedulerUnit, kubecriUnit, schedulerConfigFile} {
		if _, err := os.Stat(filepath.Join(cfg.RepoRoot, file)); err != nil {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s; a cluster without our programs comes up with --stock", cfg.RepoRoot, strings.Join(missing, ", "))
	}
	return nil
}
