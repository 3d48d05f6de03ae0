package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Config says which cluster to bring up. The zero value is a usable cluster:
// "default", with two nodes, running this repository's kube-scheduler, controller and kubecri.
type Config struct {
	// Name tells clusters on one machine apart. Default "default".
	Name string
	// StateDir holds everything of the cluster. Default /var/tmp/kubeslot/<Name>.
	// Unix sockets lie beneath it, so it must be short; Up says when it is not.
	StateDir string
	// Nodes are the nodes' names. Default node-a, node-b.
	Nodes []string
	// Stock runs the upstream kube-scheduler and points each kubelet straight at
	// containerd: the cluster to compare with. Nothing of deploy/ is applied.
	Stock bool
	// APIOnly runs etcd and the API server and nothing else; without Stock,
	// deploy/ is applied. Nodes must be empty: a benchmark makes objects of them.
	APIOnly bool
	// NRI are the nodes whose kubecri is a plugin of containerd from the start, and
	// whose kubelets talk to containerd; see docs/nri.md. SetNRI changes it.
	NRI []string
	// DevicePlugin are the nodes whose kubecri gives out slots by device plugins of the
	// kubelet; see docs/device-plugin-mode.md.
	DevicePlugin []string
	// StockScheduler runs the upstream kube-scheduler in place of ours.
	StockScheduler bool
	// SchedulerArgs are further arguments of our kube-scheduler.
	SchedulerArgs []string
	// Gangs switches Kubernetes' PodGroups on: the feature gate GenericWorkload and its API.
	Gangs bool
	// Versions are of Kubernetes' programs that are not of the pinned version.
	Versions Versions
	// RepoRoot is the checkout that holds deploy/ and our binaries' sources.
	// Default: the module's root at or above the working directory.
	RepoRoot string
	// Binaries replaces programs that are otherwise built from RepoRoot, by name:
	// kube-scheduler, kubecri, controller.
	Binaries map[string]string
	// BuildFlags are further flags of `go build` for the programs built from
	// RepoRoot, for example -race.
	BuildFlags []string
	// Keep leaves a cluster that failed to come up as it is, to look at.
	Keep bool
	// Out receives progress. Default os.Stderr.
	Out io.Writer
}

// DefaultNodes are the nodes of a cluster whose Config names none.
var DefaultNodes = []string{"node-a", "node-b"}

const (
	// clustersDir holds the clusters whose Config names no StateDir.
	clustersDir = "/var/tmp/kubeslot"

	modulePath = "github.com/kubeslot/kubeslot"

	// A unix socket's path has at most 107 bytes. Sockets lie at
	// <state>/nodes/<node>/kubecri/<socket>, and a socket's own name may take 30.
	maxSocketPath   = 107
	socketNameSpace = 30
	maxNodes        = 200
)

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// withDefaults fills what was left empty and refuses what could not work.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = "default"
	}
	if c.StateDir == "" {
		c.StateDir = filepath.Join(clustersDir, c.Name)
	}
	if len(c.Nodes) == 0 && !c.APIOnly {
		c.Nodes = DefaultNodes
	}
	if c.Out == nil {
		c.Out = os.Stderr
	}
	var err error
	if c.StateDir, err = filepath.Abs(c.StateDir); err != nil {
		return c, fmt.Errorf("state directory: %w", err)
	}
	return c, c.validate()
}

func (c Config) validate() error {
	var errs []error
	if !validName.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("cluster name %q: want lower case letters, digits and '-', at most 32", c.Name))
	}
	if c.APIOnly && len(c.Nodes) > 0 {
		errs = append(errs, fmt.Errorf("a cluster of an API server alone runs no nodes, but %d are named", len(c.Nodes)))
	}
	if len(c.Nodes) > maxNodes {
		errs = append(errs, fmt.Errorf("%d nodes: at most %d fit the cluster's address range", len(c.Nodes), maxNodes))
	}
	seen := map[string]bool{}
	for _, node := range c.Nodes {
		if !validName.MatchString(node) {
			errs = append(errs, fmt.Errorf("node name %q: want lower case letters, digits and '-', at most 32", node))
		}
		if seen[node] || node == controlNS || node == switchNS {
			errs = append(errs, fmt.Errorf("node name %q is taken", node))
		}
		seen[node] = true
		if n := len(layout{c.StateDir}.node(node).KubecriDir) + 1 + socketNameSpace; n > maxSocketPath {
			errs = append(errs, fmt.Errorf("state directory %s: %d characters too long for node %q, because unix sockets beneath it would pass the kernel's limit of %d; choose a shorter --state-dir", c.StateDir, n-maxSocketPath, node, maxSocketPath))
		}
	}
	for _, node := range slices.Concat(c.NRI, c.DevicePlugin) {
		if !slices.Contains(c.Nodes, node) {
			errs = append(errs, fmt.Errorf("node %q with NRI or device plugins is none of the nodes %q", node, c.Nodes))
		}
	}
	for _, node := range c.NRI {
		if slices.Contains(c.DevicePlugin, node) {
			errs = append(errs, fmt.Errorf("node %q has either NRI or device plugins", node))
		}
	}
	if err := c.Versions.validate(c.Nodes); err != nil {
		errs = append(errs, err)
	}
	if strings.ContainsAny(c.StateDir, " \t\n\\:,") {
		errs = append(errs, fmt.Errorf("state directory %q: blanks, '\\', ':' and ',' cannot be part of it, mount options would break", c.StateDir))
	}
	if c.StateDir == clustersDir {
		errs = append(errs, fmt.Errorf("state directory %s: other clusters are in it", c.StateDir))
	}
	for _, hidden := range nodePrivateDirs {
		if c.StateDir == hidden || strings.HasPrefix(c.StateDir, hidden+"/") {
			errs = append(errs, fmt.Errorf("state directory %s: each node has a %s of its own, so the state directory cannot lie beneath it", c.StateDir, hidden))
		}
	}
	return errors.Join(errs...)
}

// FindRepoRoot returns the folder at or above dir that holds this module's go.mod.
func FindRepoRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	start := dir
	for {
		if moduleOf(filepath.Join(dir, "go.mod")) == modulePath {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no checkout of %s at or above %s: run from inside it, or set RepoRoot", modulePath, start)
		}
		dir = parent
	}
}

func moduleOf(goMod string) string {
	f, err := os.Open(goMod)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
