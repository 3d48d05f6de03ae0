package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// PauseImage and AppImage are in every node's containerd; there is no registry,
// so pods use imagePullPolicy Never. See test/images for what they do.
const (
	PauseImage = "kubeslot.test/pause:1"
	AppImage   = "kubeslot.test/app:1"
)

// prepareNode makes a node's folders, files, cgroup and mount namespace.
func prepareNode(cfg Config, l layout, index int, cg cgroups, bin programs) error {
	n := l.node(cfg.Nodes[index])
	dirs := []string{n.KubecriDir, n.StaticPodDir, n.PodLogsDir, n.DevicePluginDir, n.HandlersDir, n.CDIDir, n.cniConfig()}
	binds := map[string]string{}
	for _, target := range nodePrivateDirs {
		binds[target] = n.privateDir(target)
		dirs = append(dirs, binds[target])
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(n.resolvConf(), []byte("# there is no DNS in this cluster\n"), 0o644); err != nil {
		return err
	}
	if err := writeCNIConfig(n, index); err != nil {
		return err
	}
	config := containerdConfig(n, bin, cfg.Versions.Containerds[n.Name], lacksSysResource())
	if err := os.WriteFile(n.containerdConfig(), []byte(config), 0o644); err != nil {
		return err
	}
	if err := writeYAML(n.kubeletConfig(), kubeletConfig(cfg, l, n, cg.v2)); err != nil {
		return err
	}
	if err := cg.create(nodeCgroup(cfg, l, n.Name)); err != nil {
		return err
	}
	return makeMountNS(n.MountNS, n.NetNS, binds)
}

func (n Node) cniConfig() string        { return filepath.Join(n.Dir, "cni/net.d") }
func (n Node) resolvConf() string       { return filepath.Join(n.Dir, "resolv.conf") }
func (n Node) containerdConfig() string { return filepath.Join(n.Dir, "containerd.toml") }
func (n Node) nriSocket() string        { return filepath.Join(n.Dir, "nri.sock") }
func (n Node) kubeletConfig() string    { return filepath.Join(n.Dir, "kubelet.yaml") }

func nodeCgroup(cfg Config, l layout, node string) string { return l.cgroup(cfg.Name) + "/" + node }

// criSocket is what kubelet talks to.
func criSocket(cfg Config, n Node) string {
	if cfg.Stock || !isProxy(cfg, n.Name) {
		return n.ContainerdSocket
	}
	return n.KubecriSocket
}

// isProxy reports whether the node's kubecri stands between kubelet and containerd.
func isProxy(cfg Config, node string) bool {
	return !slices.Contains(cfg.NRI, node) && !slices.Contains(cfg.DevicePlugin, node)
}

// writeCNIConfig uses ptp without masquerading: that, and host ports, would need
// iptables. Nodes route to each other's pods instead.
func writeCNIConfig(n Node, index int) error {
	data, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "kubeslot",
		"plugins": []any{map[string]any{
			"type":   "ptp",
			"ipMasq": false,
			"ipam": map[string]any{
				"type":    "host-local",
				"dataDir": filepath.Join(n.Dir, "cni/data"),
				"ranges":  [][]map[string]string{{{"subnet": podRange(index).String()}}},
				"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
			},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.cniConfig(), "10-ptp.conflist"), data, 0o644)
}

// containerdConfig renders the configuration (version 3) of a version of containerd, "" for
// the pinned one. Where a thing is not named, the node's own /run/containerd serves its default.
func containerdConfig(n Node, bin programs, version string, restrictOOM bool) string {
	in := func(elem string) string { return filepath.Join(n.Dir, elem) }
	var b strings.Builder
	set := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	set("version = 3")
	set("root = %q", in("containerd"))
	set("state = %q", in("containerd-state"))
	set("[grpc]")
	set("address = %q", n.ContainerdSocket)
	set("[plugins.'io.containerd.internal.v1.opt']")
	set("path = %q", in("opt"))
	set("[plugins.'io.containerd.nri.v1.nri']")
	set("socket_path = %q", n.nriSocket())
	set("plugin_path = %q", in("nri/plugins"))
	set("plugin_config_path = %q", in("nri/conf.d"))
	set("[plugins.'io.containerd.nri.v1.nri'.default_validator]")
	set("enable = true") // of pods that say so themselves
	set("[plugins.'io.containerd.cri.v1.images'.pinned_images]")
	set("sandbox = %q", PauseImage)
	set("[plugins.'io.containerd.cri.v1.runtime']")
	set("enable_cdi = true")
	set("cdi_spec_dirs = [%q, '/etc/cdi', '/var/run/cdi']", n.CDIDir)
	set("netns_mounts_under_state_dir = true")
	set("restrict_oom_score_adj = %t", restrictOOM)
	set("[plugins.'io.containerd.cri.v1.runtime'.cni]")
	if version == "2.0" {
		set("bin_dir = %q", bin.dirOf("ptp"))
	} else {
		set("bin_dirs = [%q]", bin.dirOf("ptp"))
	}
	set("conf_dir = %q", n.cniConfig())
	set("[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]")
	set("runtime_type = 'io.containerd.runc.v2'")
	set("[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]")
	set("BinaryName = %q", bin["noseccomp"])
	set("SystemdCgroup = false")
	return b.String()
}

// kubeletConfig keeps kubelet's defaults, but for where things are and for what
// a machine that is not a dedicated node would trip over: a full disk, swap,
// cgroup v1.
func kubeletConfig(cfg Config, l layout, n Node, cgroupV2 bool) map[string]any {
	cert, key := l.keyPair(processID(Kubelet, n.Name))
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": l.caFile()},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"tlsCertFile":              cert,
		"tlsPrivateKeyFile":        key,
		"containerRuntimeEndpoint": "unix://" + criSocket(cfg, n),
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               nodeCgroup(cfg, l, n.Name),
		"failCgroupV1":             cgroupV2,
		"failSwapOn":               false,
		"clusterDomain":            "cluster.local",
		"resolvConf":               n.resolvConf(),
		"staticPodPath":            n.StaticPodDir,
		"podLogsDir":               n.PodLogsDir,
		"volumePluginDir":          "/var/lib/kubelet/volumeplugins",
		"makeIPTablesUtilChains":   false,
		// Images cannot be pulled again: never collect them.
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"evictionHard": map[string]string{
			"memory.available":   "100Mi",
			"nodefs.available":   "0%",
			"nodefs.inodesFree":  "0%",
			"imagefs.available":  "0%",
			"imagefs.inodesFree": "0%",
		},
	}
}

func containerdProcess(cfg Config, n Node, bin programs) *process {
	containerd := cfg.Versions.containerd(n.Name)
	return &process{
		Component: Containerd, Node: n.Name, NetNS: n.NetNS, MountNS: n.MountNS,
		Argv: []string{bin[containerd], "--config=" + n.containerdConfig()},
		// containerd looks for its shim there.
		Env: []string{"PATH=" + bin.dirOf(containerd) + ":" + os.Getenv("PATH")},
	}
}

func kubeletProcess(cfg Config, l layout, n Node, bin programs) *process {
	return &process{
		Component: Kubelet, Node: n.Name, NetNS: n.NetNS, MountNS: n.MountNS,
		Argv: []string{
			bin[cfg.Versions.kubelet(n.Name)],
			"--config=" + n.kubeletConfig(),
			"--kubeconfig=" + l.kubeconfig(processID(Kubelet, n.Name)),
			"--hostname-override=" + n.Name,
			"--node-ip=" + n.IP,
			"--v=2",
		},
	}
}

// lacksSysResource tells whether this process may not lower an OOM score, as in
// some virtual machines and most containers; runc then fails unless told.
func lacksSysResource() bool { return !hasCapability(unix.CAP_SYS_RESOURCE) }
