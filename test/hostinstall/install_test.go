package hostinstall

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

const configuration = `apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: cameras}
spec:
  discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [gate, yard]"}
  capacity: 2
`

// TestInstall goes the whole way on one host: refused, installed, used, upgraded in
// place, pointed past, uninstalled; failures that are undone, and a run that is killed.
func TestInstall(t *testing.T) {
	h := boot(t)
	file := filepath.Join(h.work, "cameras.yaml")
	h.write(file, configuration)
	_, err := h.cluster.Kubectl(h.ctx, "apply", "-f", file)
	h.check(err)
	// They are applied already, as the cluster comes with them.
	h.apply("docs/install.md", "kubectl apply -k deploy/")
	h.apply("docs/helm.md", "kubectl apply -f deploy/crds")
	h.version("docs/versions.md", "kube-scheduler --version")
	plain := h.startPod("plain", 0)
	before := h.files()
	own := "--kubeconfig=" + h.cluster.ComponentKubeconfig(cluster.Kubecri, node)
	unchanged := func() {
		t.Helper()
		if diff := cmp.Diff(before, h.files()); diff != "" {
			t.Errorf("the host is not as it was (-before +now):\n%s", diff)
		}
		h.sameContainer(plain)
	}

	h.Run("refused", func(t *testing.T) {
		h := h.in(t)
		h.wantOutput(false, []string{"nothing was changed: no answer", "say --yes"}, "install", own)
		h.wantOutput(false, []string{"unknown flag: --yse"}, "install", "--yse")
		h.wantOutput(false, []string{"nothing was changed", "lacks: ", "deploy/kubelet-identity/"}, "install", "--yes") // the kubelet's own
		h.wantOutput(false, []string{"nothing was changed", `get node "other"`, "--node-name"}, "install", "--yes", own, "--node-name=other")
		h.wantOutput(false, []string{"nothing was changed", "systemd has no unit other.service"}, "install", "--yes", own, "--kubelet-unit=other.service")
		h.wantOutput(false, []string{"nothing was changed", "FAIL  runtime", "/run/none.sock"}, "install", "--yes", own, "--runtime-endpoint=unix:///run/none.sock")
		h.wantOutput(false, []string{"not installed here"}, "uninstall", "--yes")
		h.wantOutput(true, []string{"change  /var/lib/kubelet/config.yaml", "change  /var/lib/kubelet/instance-config.yaml", "create  /etc/systemd/system/kubecri.service"}, "install", "--dry-run", own)
		unchanged()
	})

	h.Run("undone", func(t *testing.T) {
		h := h.in(t)
		h.wantOutput(false, []string{"kubecri.service", "all was undone"}, "install", "--yes", own, "--timeout=5s", "--args=--claim-grace=-1s")
		unchanged()
		// A kubelet that does not come back with kubecri.
		h.write(filepath.Join(h.units(), "kubelet.service.d/99-fails.conf"), "[Service]\nExecStartPre=/bin/sh -c '! grep kubecri.sock /var/lib/kubelet/config.yaml'\n")
		h.wantOutput(false, []string{"FAILED", "kubelet.service", "all was undone"}, "install", "--yes", own, "--timeout=5s")
		h.check(os.Remove(filepath.Join(h.units(), "kubelet.service.d/99-fails.conf")))
		_, err := h.run("systemctl", "daemon-reload")
		h.check(err)
		unchanged()
	})

	h.Run("killed", func(t *testing.T) {
		h := h.in(t)
		for _, complete := range []bool{false, true} {
			cmd := h.command(filepath.Join(h.cluster.BinDir(), "kubecri"), "install", "--yes", own)
			h.check(cmd.Start())
			h.await("the kubelet's configuration to be changed", func() (bool, string) {
				data, err := os.ReadFile(h.kubeletFile("config.yaml"))
				return err == nil && strings.Contains(string(data), "kubecri.sock"), fmt.Sprint(err)
			})
			// nsenter's child is kubecri.
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
			h.check(err)
			var pid int
			_, err = fmt.Sscan(string(children), &pid)
			h.check(err)
			h.check(syscall.Kill(pid, syscall.SIGKILL))
			_ = cmd.Wait()
			if complete {
				h.wantOutput(true, []string{"is installed"}, "install", "--yes", own)
			}
			h.wantOutput(true, []string{"nothing of it is left"}, "uninstall", "--yes")
			unchanged()
		}
	})

	h.Run("used", func(t *testing.T) {
		h := h.in(t)
		begin := time.Now()
		h.wantOutput(true, []string{"ok    RBAC", "waiting until it is healthy: kubelet.service", "is installed"}, h.typed("docs/install.md", "kubecri install", "--yes", own)...)
		t.Logf("installed in %s", time.Since(begin).Round(100*time.Millisecond))
		h.sameContainer(plain)
		if mode, err := h.run("stat", "--format=%A %U", "/run/kubeslot/plugins/devices"); mode != "drwxr-xr-x root\n" {
			t.Errorf("the directory of plugins' sockets is %q (%v), want one that root alone may write", mode, err)
		}
		check := h.typed("docs/install.md", "kubecri check", own, "--runtime-endpoint=unix://"+h.node.ContainerdSocket)
		h.wantOutput(true, []string{"ok    kubelet", "uses unix:///run/kubecri/kubecri.sock, as /var/lib/kubelet/config.yaml says", "ok    versions"}, check...)
		viewer := h.startPod("viewer", 2)
		out, err := h.cluster.Kubectl(h.ctx, "exec", "viewer", "--", "/app", "env")
		h.check(err)
		if !strings.Contains(out, "AKRI_DEVICES=") || !strings.Contains(out, "DEBUG_ECHO_DESCRIPTION_") {
			t.Errorf("the pod's environment: %s", out)
		}
		h.wantOutput(true, []string{"nothing to do"}, "install", "--yes")

		// A new version, and other arguments: the kubelet stays.
		pid := h.kubeletPID()
		h.wantOutput(true, []string{"KUBECRI_ARGS=--v=3"}, "install", "--yes", "--args=--v=3")
		if now := h.kubeletPID(); now != pid {
			t.Errorf("the kubelet was restarted, process %s became %s", pid, now)
		}

		// Somebody has the kubelet bypass kubecri.
		config := h.kubeletFile("config.yaml")
		data, err := os.ReadFile(config)
		h.check(err)
		past := strings.ReplaceAll(string(data), "unix:///run/kubecri/kubecri.sock", "unix://"+h.node.ContainerdSocket)
		h.check(os.WriteFile(config, []byte(past), 0o644))
		h.wantOutput(false, []string{"FAIL  kubelet", "uses unix://" + h.node.ContainerdSocket + ", as /var/lib/kubelet/config.yaml says", "kubecri install"}, check...)
		h.wantOutput(true, []string{"is installed"}, "install", "--yes")
		h.wantOutput(true, []string{"ok    kubelet"}, check...)

		h.sameContainer(plain)
		h.sameContainer(viewer)
		h.wantOutput(true, []string{"1 pods here were assigned devices", "default/viewer", "removed capacity akri.sh/cameras", "removed slotclaim cameras-", "removed deviceslice node-a-", "nothing of it is left"},
			h.typed("docs/install.md", "kubecri uninstall", "--yes")...)
		unchanged()
		h.sameContainer(viewer)
		h.nothingInTheAPI()
		// What a kubecri has left that was removed in another way.
		state := fmt.Sprintf("/proc/%d/root/var/lib/kubecri/", h.pid)
		h.write(state+"checkpoint.json", "over")
		h.write(state+"ours", "which no kubecri wrote")
		h.wantOutput(true, []string{"removed /var/lib/kubecri/checkpoint.json",
			"kept /var/lib/kubecri/ours: kubecri did not write it", "nothing left"},
			h.typed("docs/install.md", "kubecri cleanup", "--yes", own, "--node-name="+node)...)
		h.check(os.RemoveAll(state))
		unchanged()
		h.check(h.kube.CoreV1().Pods("default").Delete(h.ctx, "viewer", metav1.DeleteOptions{}))
	})

	h.Run("the scheduler as kubeadm's static pod", func(t *testing.T) {
		h := h.in(t)
		h.wantOutput(true, []string{"is installed"}, "install", "--yes", own)
		end := h.staticPod(t)
		viewer := h.startPod("viewer", 1)
		if viewer.Annotations["kubeslot.io/holder"] != string(viewer.UID) {
			t.Errorf("the pod was not given a slot: %v", viewer.Annotations)
		}
		end()
		h.check(h.kube.CoreV1().Pods("default").Delete(h.ctx, "viewer", metav1.DeleteOptions{}))
		h.wantOutput(true, []string{"nothing of it is left"}, "uninstall", "--yes")
		unchanged()
	})

	h.Run("the kubelet's identity, flags, NRI", func(t *testing.T) {
		h := h.in(t)
		h.apply("docs/install.md", "kubectl apply -k deploy/kubelet-identity/")
		// kubeadm 1.33 and older: the endpoint is a flag.
		original := map[string]string{}
		for _, name := range []string{"config.yaml", "kubeadm-flags.env"} {
			data, err := os.ReadFile(h.kubeletFile(name))
			h.check(err)
			original[name] = string(data)
		}
		endpoint := "unix://" + h.node.ContainerdSocket
		h.write(h.kubeletFile("config.yaml"), strings.ReplaceAll(original["config.yaml"], "containerRuntimeEndpoint: "+endpoint, `containerRuntimeEndpoint: ""`))
		h.write(h.kubeletFile("kubeadm-flags.env"), strings.Replace(original["kubeadm-flags.env"], `"`, `"--container-runtime-endpoint=`+endpoint+" ", 1))
		_, err = h.run("systemctl", "restart", "kubelet.service")
		h.check(err)
		flags := h.files()
		h.wantOutput(true, []string{"note  RBAC", "does not discover for others", "+ KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/kubecri/kubecri.sock --hostname-override"}, "install", "--yes")
		viewer := h.startPod("viewer", 1)
		h.wantOutput(true, []string{"nothing of it is left"}, "uninstall", "--yes")
		if diff := cmp.Diff(flags, h.files()); diff != "" {
			t.Errorf("the host is not as it was (-before +now):\n%s", diff)
		}
		h.sameContainer(viewer)
		h.nothingInTheAPI()
		h.check(h.kube.CoreV1().Pods("default").Delete(h.ctx, "viewer", metav1.DeleteOptions{}))

		// In NRI mode the kubelet stays as it is.
		pid, socket := h.kubeletPID(), filepath.Join(h.node.Dir, "nri.sock")
		h.wantOutput(true, []string{"ok    NRI", "KUBECRI_ARGS=--mode=nri"}, "install", "--yes", "--mode=nri", "--nri-socket="+socket, "--args=--nri-socket="+socket)
		viewer = h.startPod("viewer", 1)
		h.wantOutput(true, []string{"nothing of it is left"}, "uninstall", "--yes")
		if now := h.kubeletPID(); now != pid {
			t.Errorf("the kubelet was restarted, process %s became %s", pid, now)
		}
		h.sameContainer(viewer)
		if diff := cmp.Diff(flags, h.files()); diff != "" {
			t.Errorf("the host is not as it was (-before +now):\n%s", diff)
		}
	})
}

// typed are the words of the page's command of kubecri that begins so, and more.
func (h *host) typed(page, begin string, more ...string) []string {
	h.Helper()
	return append(strings.Fields(command(h.T, page, begin))[1:], more...)
}

// apply runs the page's `kubectl apply` of a directory of deploy/.
func (h *host) apply(page, begin string) {
	h.Helper()
	words := strings.Fields(command(h.T, page, begin))[1:]
	words[len(words)-1] = filepath.Join(h.cluster.Config().RepoRoot, words[len(words)-1])
	_, err := h.cluster.Kubectl(h.ctx, words...)
	h.check(err)
}

// version runs the page's command that has a program say its version.
func (h *host) version(page, begin string) {
	h.Helper()
	words := strings.Fields(command(h.T, page, begin))
	out, err := exec.CommandContext(h.ctx, filepath.Join(h.cluster.BinDir(), words[0]), words[1:]...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Kubeslot v") {
		h.Errorf("%q: %v\n%s", words, err, out)
	}
}

// in returns the host for a part of the test.
func (h *host) in(t *testing.T) *host {
	part := *h
	part.T = t
	return &part
}

func (h *host) kubeletPID() string {
	h.Helper()
	out, err := h.run("systemctl", "show", "kubelet.service", "--property=MainPID")
	h.check(err)
	return strings.TrimSpace(out)
}

// nothingInTheAPI checks that the node has nothing of kubecri's.
func (h *host) nothingInTheAPI() {
	h.Helper()
	n, err := h.kube.CoreV1().Nodes().Get(h.ctx, node, metav1.GetOptions{})
	h.check(err)
	var conditions []string
	for _, c := range n.Status.Conditions {
		conditions = append(conditions, string(c.Type))
	}
	for _, names := range [][]string{keys(n.Annotations), keys(n.Labels), keys(n.Status.Capacity), keys(n.Status.Allocatable), conditions} {
		for _, name := range names {
			if strings.HasPrefix(name, "akri.sh/") || strings.HasPrefix(name, "kubeslot.io/") || strings.HasPrefix(name, "KubeDevice/") {
				h.Errorf("the node has %s", name)
			}
		}
	}
	reported, err := h.client.KubeslotV1alpha1().DeviceSlices().List(h.ctx, metav1.ListOptions{})
	h.check(err)
	claims, err := h.client.KubeslotV1alpha1().SlotClaims().List(h.ctx, metav1.ListOptions{})
	h.check(err)
	if len(reported.Items)+len(claims.Items) > 0 {
		h.Errorf("%d DeviceSlices and %d SlotClaims are left", len(reported.Items), len(claims.Items))
	}
}

func keys[K ~string, V any](m map[K]V) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, string(k))
	}
	return all
}
