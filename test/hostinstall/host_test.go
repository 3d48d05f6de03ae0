// Package hostinstall tries `kubecri install`, `uninstall` and `check` on a host that
// systemd runs: real systemd, kubelet and containerd, on a node of a real cluster, with
// the files that kubeadm and its packages put there.
package hostinstall

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/need"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

//go:embed boot.sh
var bootScript string

const (
	node = "node-a"
	// cgroup is systemd's, in its own hierarchies.
	cgroup = "kubeslot-test-host"

	systemd = "/lib/systemd/systemd"
	fileMax = "/proc/sys/fs/file-max"
)

// kubeletUnit and kubeadmDropIn are those of kubeadm's packages; %s is the program.
const kubeletUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=%[1]s
WorkingDirectory=%[2]s
Restart=always
StartLimitInterval=0
RestartSec=1

[Install]
WantedBy=multi-user.target
`

const kubeadmDropIn = `# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--kubeconfig=%[2]s"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# This is a file that "kubeadm init" and "kubeadm join" generates at runtime, populating the KUBELET_KUBEADM_ARGS variable dynamically
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
# This is a file that the user can use for overrides of the kubelet args as a last resort.
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=%[1]s $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

// host is the node, run by systemd.
type host struct {
	*testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	node    cluster.Node
	kube    kubernetes.Interface
	client  versioned.Interface
	work    string
	pid     int // of systemd
	log     *os.File
}

// boot brings a cluster of one node up, and has systemd run the node, with kubelet and
// containerd and without kubecri.
func boot(t *testing.T) *host {
	if testing.Short() {
		t.Skip("goes through a host's life for minutes: make test-all")
	}
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("brings up a cluster: run `make test-e2e` as root")
	}
	need.Program(t, "apt-get install systemd", systemd)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	cfg := cluster.Config{Name: "host", Nodes: []string{node}}
	h := &host{T: t, ctx: ctx}
	h.check(cluster.Down(ctx, cfg))
	var err error
	h.cluster, err = cluster.Up(ctx, cfg)
	h.check(err)
	h.node = h.cluster.Nodes()[0]
	t.Cleanup(func() {
		if t.Failed() {
			h.dump()
		}
		h.stop()
		if os.Getenv("KEEP") == "" {
			if err := h.cluster.Down(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	config, err := h.cluster.RESTConfig()
	h.check(err)
	h.kube, err = kubernetes.NewForConfig(config)
	h.check(err)
	h.client, err = versioned.NewForConfig(config)
	h.check(err)

	containerd := h.commandLine(cluster.Containerd)
	for _, component := range []string{cluster.Kubelet, cluster.Kubecri, cluster.Containerd} {
		h.check(h.cluster.Kill(component, node, syscall.SIGKILL))
	}
	h.forgetKubecri()
	h.work = filepath.Join(h.node.Dir, "host")
	h.check(os.MkdirAll(filepath.Join(h.work, "rundir"), 0o755)) // see FACTS: the kubelet's working directory
	h.writeUnits(containerd)
	h.writeKubeletFiles()
	begin := time.Now()
	h.start()
	h.await("the node to be Ready", func() (bool, string) {
		n, err := h.kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(begin.Truncate(time.Second)), c.Message
			}
		}
		return false, "no condition"
	})
	return h
}

// commandLine is the one of a component that runs.
func (h *host) commandLine(component string) []string {
	h.Helper()
	pid, err := h.cluster.PID(component, node)
	h.check(err)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	h.check(err)
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// forgetKubecri removes what the cluster's own kubecri said of the node.
func (h *host) forgetKubecri() {
	h.Helper()
	h.check(h.client.KubeslotV1alpha1().DeviceSlices().DeleteCollection(h.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	_, err := h.cluster.Kubectl(h.ctx, "annotate", "node", node, "KubeDevice/DeviceInfo-")
	h.check(err)
}

func (h *host) write(path, text string) {
	h.Helper()
	h.check(os.MkdirAll(filepath.Dir(path), 0o755))
	h.check(os.WriteFile(path, []byte(text), 0o644))
}

// units is the folder of the packages' units.
func (h *host) units() string { return filepath.Join(h.work, "units") }

func (h *host) writeUnits(containerd []string) {
	for _, target := range []string{"basic", "sysinit", "shutdown", "umount", "network-online"} {
		h.write(filepath.Join(h.units(), target+".target"), "[Unit]\nDefaultDependencies=no\n")
	}
	h.write(filepath.Join(h.units(), "multi-user.target"), "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=hierarchies.service containerd.service kubelet.service\nAllowIsolate=yes\n")
	// systemd mounts every cgroup hierarchy that the kernel has. The kubelet, whose cgroup
	// was made without those, would miss it there.
	script := filepath.Join(h.work, "hierarchies.sh")
	h.write(script, "for d in /sys/fs/cgroup/*; do\n[ ! -d $d ] || grep -qxF ${d##*/} /run/hierarchies || umount --quiet $d\ndone\ntrue\n")
	h.write(filepath.Join(h.units(), "hierarchies.service"), "[Unit]\nBefore=containerd.service kubelet.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh "+script+"\n")
	h.write(filepath.Join(h.units(), "containerd.service"), fmt.Sprintf("[Service]\nType=notify\nDelegate=yes\nKillMode=process\nRestart=always\nEnvironment=PATH=%s:%s\nExecStart=%s\n",
		h.cluster.BinDir(), os.Getenv("PATH"), strings.Join(containerd, " ")))
	kubelet := filepath.Join(h.cluster.BinDir(), "kubelet")
	h.write(filepath.Join(h.units(), "kubelet.service"), fmt.Sprintf(kubeletUnit, kubelet, filepath.Join(h.work, "rundir")))
	h.write(filepath.Join(h.units(), "kubelet.service.d/10-kubeadm.conf"), fmt.Sprintf(kubeadmDropIn, kubelet, h.cluster.ComponentKubeconfig(cluster.Kubelet, node)))
}

// kubeletFile is a file of /var/lib/kubelet as this machine sees it.
func (h *host) kubeletFile(name string) string { return filepath.Join(h.node.KubeletDir, name) }

// writeKubeletFiles leaves what kubeadm 1.37 leaves, with containerd as the runtime.
func (h *host) writeKubeletFiles() {
	h.Helper()
	config, err := os.ReadFile(filepath.Join(h.node.Dir, "kubelet.yaml"))
	h.check(err)
	endpoint := "unix://" + h.node.ContainerdSocket
	h.write(h.kubeletFile("config.yaml"), strings.ReplaceAll(string(config), "unix://"+h.node.KubecriSocket, endpoint))
	h.write(h.kubeletFile("instance-config.yaml"), fmt.Sprintf("containerRuntimeEndpoint: %q\n", endpoint))
	h.write(h.kubeletFile("kubeadm-flags.env"), fmt.Sprintf("KUBELET_KUBEADM_ARGS=%q\n", "--hostname-override="+node+" --node-ip="+h.node.IP+" --v=2"))
}

// start starts systemd. Of this machine's kernel it changes fs.file-max.
func (h *host) start() {
	h.Helper()
	maximum, err := os.ReadFile(fileMax)
	h.check(err)
	h.Cleanup(func() { h.check(os.WriteFile(fileMax, maximum, 0o644)) })
	script := filepath.Join(h.work, "boot.sh")
	h.write(script, bootScript)
	h.log, err = os.OpenFile(filepath.Join(h.work, "systemd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	h.check(err)
	cmd := exec.Command("nsenter", "--net="+h.node.NetNS, "--mount="+h.node.MountNS, "--",
		"unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", script)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "WORK="+filepath.Join(h.work, "overlay"), "UNITS="+h.units(), "NODE_DIR="+h.node.Dir, "NODE_NAME="+node, "CGROUP="+cgroup)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	// No Pdeathsig: it is of the thread, and the cluster ends threads. What is left of a run
	// that was killed is taken away with the cluster, whose network it is in.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	h.check(os.MkdirAll(filepath.Join(h.work, "overlay"), 0o755))
	h.check(cmd.Start())
	go func() { _ = cmd.Wait() }() // no zombie
	h.await("systemd to run", func() (bool, string) {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if _, scanErr := fmt.Sscan(string(children), &h.pid); err != nil || scanErr != nil {
			return false, fmt.Sprint(err, scanErr)
		}
		out, err := h.run("systemctl", "is-active", "kubelet.service")
		return err == nil, out
	})
}

// stop kills systemd, and with it all that it started, and removes its cgroups.
func (h *host) stop() {
	if h.pid == 0 {
		return
	}
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"} {
		h.await("systemd's cgroups to be empty", func() (bool, string) {
			err := removeTree(filepath.Join(hierarchy, cgroup))
			return err == nil, fmt.Sprint(err)
		})
	}
	h.log.Close()
}

// removeTree removes cgroups, the inner ones first.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// command is a program on the host.
func (h *host) command(args ...string) *exec.Cmd {
	enter := []string{"--target", fmt.Sprint(h.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}
	return exec.Command("nsenter", append(enter, args...)...)
}

// run returns what the program prints, errors too.
func (h *host) run(args ...string) (string, error) {
	out, err := h.command(args...).CombinedOutput()
	return string(out), err
}

// kubecri runs this tree's program, as somebody who has downloaded it.
func (h *host) kubecri(args ...string) (string, error) {
	out, err := h.run(append([]string{filepath.Join(h.cluster.BinDir(), "kubecri")}, args...)...)
	h.Logf("kubecri %s: %v\n%s", strings.Join(args, " "), err, out)
	return out, err
}

// wantOutput runs kubecri, which is to succeed or not, and to say all the parts.
func (h *host) wantOutput(succeeds bool, parts []string, args ...string) {
	h.Helper()
	out, err := h.kubecri(args...)
	if (err == nil) != succeeds {
		h.Fatalf("kubecri %s: %v", strings.Join(args, " "), err)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			h.Errorf("kubecri %s does not say %q", strings.Join(args, " "), part)
		}
	}
}

// files are all regular files of the host that an install could change, with their
// contents.
func (h *host) files() map[string]string {
	h.Helper()
	all := map[string]string{}
	root := fmt.Sprintf("/proc/%d/root", h.pid)
	for _, dir := range []string{"/etc/systemd", "/etc/kubeslot", "/usr/local/bin", "/var/lib/kubecri", "/var/lib/akri",
		"/run/kubecri", "/run/kubeslot", "/run/cdi",
		"/usr/lib/systemd/system"} {
		err := filepath.WalkDir(root+dir, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			text := entry.Type().String()
			if entry.Type().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text = string(data)
				if len(data) > 1<<20 {
					text = fmt.Sprintf("%d bytes", len(data))
				}
			}
			all[strings.TrimPrefix(path, root)] = text
			return nil
		})
		h.check(err)
	}
	for _, name := range []string{"config.yaml", "instance-config.yaml", "kubeadm-flags.env"} {
		data, err := os.ReadFile(h.kubeletFile(name))
		h.check(err)
		all["/var/lib/kubelet/"+name] = string(data)
	}
	return all
}

func (h *host) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// await waits until ok, or fails with what was awaited and what was last seen.
func (h *host) await(what string, ok func() (bool, string)) {
	h.Helper()
	await.That(h.T, what, ok)
}

// dump shows what a reader of a failure wants to see.
func (h *host) dump() {
	for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"get", "node", node, "-o", "yaml"}, {"get", "deviceslices,slotclaims,configurations,instances", "-A"}} {
		out, err := h.cluster.Kubectl(context.Background(), args...)
		h.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	if h.pid != 0 {
		out, _ := h.run("systemctl", "status", "--no-pager", "--full", "kubelet.service", "kubecri.service", "containerd.service")
		h.Logf("%s", out)
	}
	if data, err := os.ReadFile(filepath.Join(h.work, "systemd.log")); err == nil {
		lines := bytes.Split(data, []byte("\n"))
		h.Logf("end of systemd's log:\n%s", bytes.Join(lines[max(0, len(lines)-60):], []byte("\n")))
	}
}
