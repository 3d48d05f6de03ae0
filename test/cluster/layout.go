package cluster

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
)

// layout names what lies where in a state folder.
type layout struct{ dir string }

func (l layout) logs() string                  { return filepath.Join(l.dir, "logs") }
func (l layout) bin() string                   { return filepath.Join(l.dir, "bin") }
func (l layout) pki() string                   { return filepath.Join(l.dir, "pki") }
func (l layout) etcd() string                  { return filepath.Join(l.dir, "etcd") }
func (l layout) procs() string                 { return filepath.Join(l.dir, "procs") }
func (l layout) images() string                { return filepath.Join(l.dir, "images") }
func (l layout) config() string                { return filepath.Join(l.dir, "config") }
func (l layout) schedulerConfig() string       { return filepath.Join(l.config(), "kube-scheduler.yaml") }
func (l layout) namespaces() string            { return filepath.Join(l.dir, "ns") }
func (l layout) schedulerPlugins() string      { return filepath.Join(l.dir, "schedulerplugins") }
func (l layout) pluginSockets() string         { return filepath.Join(l.dir, "pluginsockets") }
func (l layout) saved() string                 { return filepath.Join(l.dir, "cluster.json") }
func (l layout) apiAddress() string            { return filepath.Join(l.dir, "api-address") }
func (l layout) auditLog() string              { return filepath.Join(l.logs(), "audit.log") }
func (l layout) netNS(name string) string      { return filepath.Join(l.namespaces(), "net-"+name) }
func (l layout) mountNS(name string) string    { return filepath.Join(l.namespaces(), "mnt-"+name) }
func (l layout) kubeconfig(user string) string { return filepath.Join(l.dir, "kubeconfigs", user) }
func (l layout) keyPair(name string) (c, k string) {
	return filepath.Join(l.pki(), name+".crt"), filepath.Join(l.pki(), name+".key")
}

func (l layout) logOf(component, node string) string {
	return filepath.Join(l.logs(), processID(component, node)+".log")
}

// workOf is a component's working directory, which no other has.
func (l layout) workOf(component, node string) string {
	return filepath.Join(l.dir, "work", processID(component, node))
}

// cgroup is the cluster's cgroup in every hierarchy; nodes' cgroups lie in it.
// The hash keeps it apart from a cluster of the same name in another folder.
func (l layout) cgroup(name string) string {
	return fmt.Sprintf("/kubeslot-%s-%.3x", name, sha256.Sum256([]byte(l.dir)))
}

// Node says where a node's things are. Paths are the same on the host and in the
// node's mount namespace, unless said otherwise.
type Node struct {
	Name string
	// IP is the node's address; it exists only in the cluster's namespaces.
	IP string
	// Dir holds everything of the node.
	Dir string
	// NetNS and MountNS are bind mounts, for nsenter(1) and setns(2).
	NetNS, MountNS string
	// ContainerdSocket and KubecriSocket are CRI endpoints, without "unix://".
	ContainerdSocket, KubecriSocket string
	// KubecriDir is kubecri's STATE_DIR.
	KubecriDir string
	// StaticPodDir is kubelet's staticPodPath.
	StaticPodDir string
	// PodLogsDir is kubelet's podLogsDir.
	PodLogsDir string
	// DevicePluginDir is kubecri's --cridevices, empty at first.
	DevicePluginDir string
	// HandlersDir is kubecri's --discovery-handlers-directory, where discovery
	// handlers register and have their sockets.
	HandlersDir string
	// CDIDir is where the node's containerd looks for CDI specs first.
	CDIDir string
	// KubeletDir is the node's /var/lib/kubelet as the host sees it; tmpfs volumes
	// beneath it are visible in the node's mount namespace alone.
	KubeletDir string
}

func (l layout) node(name string) Node {
	dir := filepath.Join(l.dir, "nodes", name)
	in := func(elem string) string { return filepath.Join(dir, elem) }
	return Node{
		Name:             name,
		Dir:              dir,
		NetNS:            l.netNS(name),
		MountNS:          l.mountNS(name),
		ContainerdSocket: in("containerd.sock"),
		KubecriSocket:    in("kubecri.sock"),
		KubecriDir:       in("kubecri"),
		StaticPodDir:     in("manifests"),
		PodLogsDir:       in("pod-logs"),
		DevicePluginDir:  in("cridevices"),
		HandlersDir:      in("akri"),
		CDIDir:           in("cdi"),
		KubeletDir:       in("kubelet"),
	}
}

// nodes lists the nodes with their addresses.
func (l layout) nodes(names []string) []Node {
	var nodes []Node
	for i, name := range names {
		n := l.node(name)
		n.IP = nodeIP(i).String()
		nodes = append(nodes, n)
	}
	return nodes
}

// nodePrivateDirs are paths that a node's programs cannot be told to leave alone: for device
// plugin sockets, container log links, shim sockets, results of CNI plugins, the socket of
// NRI, what mount(8) remembers, and sockets of Kubeslot's plugins. In a node's mount namespace each shows a
// folder of the node.
var nodePrivateDirs = []string{"/var/lib/kubelet", "/var/log", "/run/containerd", "/var/lib/cni", "/run/nri",
	"/run/mount",
	"/run/kubeslot"}

func (n Node) privateDir(target string) string {
	if target == "/var/lib/kubelet" {
		return n.KubeletDir
	}
	return filepath.Join(n.Dir, strings.ReplaceAll(target[1:], "/", "-")) // var-log for /var/log
}
