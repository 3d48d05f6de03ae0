package hostinstall

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/kubecri/install/hostinstall"
	"github.com/kubeslot/kubeslot/test/cluster"
)

const (
	patches      = "../../deploy/kubeadm/patches"
	clusterFile  = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\n"
	initFile     = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 10.240.0.10}\nnodeRegistration: {name: node-a, criSocket: 'unix:///run/containerd/containerd.sock'}\n---\n"
	schedulerPod = "/etc/kubernetes/manifests/kube-scheduler.yaml"
)

// kubeadmRoot is a root folder with kubeadm in it, and nothing else.
type kubeadmRoot struct {
	*testing.T
	dir string
}

func newKubeadmRoot(t *testing.T) kubeadmRoot {
	if testing.Short() {
		t.Skip("builds kubeadm: make test-all")
	}
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("builds kubeadm and needs root: run `make test-e2e` as root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	program, err := cluster.Kubeadm(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	r := kubeadmRoot{t, t.TempDir()}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	r.write("/kubeadm", string(data))
	if err := os.Chmod(filepath.Join(r.dir, "kubeadm"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"proc", "dev", "etc", "tmp", "sys"} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(patches + "/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no patches in %s: %v", patches, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r.write("/etc/kubernetes/patches/"+filepath.Base(file), string(data))
	}
	return r
}

func (r kubeadmRoot) write(path, text string) {
	r.Helper()
	path = filepath.Join(r.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

func (r kubeadmRoot) read(path string) string {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, path))
	if err != nil {
		r.Fatal(err)
	}
	return string(data)
}

// kubeadm returns what it prints, errors too.
func (r kubeadmRoot) kubeadm(args ...string) string {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "/kubeadm", args...)
	cmd.Dir, cmd.Env = "/", []string{"HOME=/", "PATH=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("kubeadm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (r kubeadmRoot) scheduler() *corev1.Pod {
	r.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(r.read(schedulerPod)), pod); err != nil {
		r.Fatal(err)
	}
	return pod
}

// The commands of docs/kubeadm.md put our image into the static pod, which runs it as
// root, and nothing else changes; without the patch kubeadm takes it away again.
func TestKubeadmPatch(t *testing.T) {
	r := newKubeadmRoot(t)
	r.write("/stock.yaml", initFile+clusterFile)
	r.write("/patched.yaml", strings.Replace(initFile, "---", "patches: {directory: /etc/kubernetes/patches}\n---", 1)+clusterFile)
	write := func(config string) *corev1.Pod {
		r.kubeadm("init", "phase", "control-plane", "scheduler", "--config", config)
		return r.scheduler()
	}
	stock := write("/stock.yaml")
	ours := write("/patched.yaml")
	if image := ours.Spec.Containers[0].Image; image != patchImage(t) || image == stock.Spec.Containers[0].Image {
		t.Errorf("the image is %s", image)
	}
	if len(ours.Spec.Containers) != 1 || ours.Spec.Containers[0].Command[0] != "kube-scheduler" { // the image's PATH has it
		t.Errorf("containers %+v", ours.Spec.Containers)
	}
	if c := ours.Spec.Containers[0].SecurityContext; c == nil || *c.RunAsUser != 0 {
		t.Errorf("security context %+v: scheduler.conf is root's alone", c)
	}
	ours.Spec.Containers[0].Image, ours.Spec.Containers[0].SecurityContext = stock.Spec.Containers[0].Image, stock.Spec.Containers[0].SecurityContext
	if diff := cmp.Diff(stock, ours); diff != "" {
		t.Errorf("more than the image and its user is patched (-stock +ours):\n%s", diff)
	}
	if image := write("/stock.yaml").Spec.Containers[0].Image; image != stock.Spec.Containers[0].Image {
		t.Errorf("without the patch the image is %s", image)
	}
}

// What kubeadm writes for a kubelet is what install finds its way in.
func TestKubeadmKubeletFiles(t *testing.T) {
	r := newKubeadmRoot(t)
	r.write("/cluster.yaml", initFile+clusterFile)
	r.kubeadm("init", "phase", "kubelet-start", "--config", "/cluster.yaml")
	h := hostinstall.Host{Systemd: true, Files: map[string]string{}, Kubelet: hostinstall.Kubelet{Unit: "kubelet.service", Found: true, Running: true,
		CommandLine: []string{"/var/lib/kubelet/kubeadm-flags.env"}, Config: []string{"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml"}}}
	for _, file := range append(h.Kubelet.CommandLine, h.Kubelet.Config...) {
		h.Files[file] = r.read(file)
	}
	p, err := hostinstall.Install(h, hostinstall.Want{NodeName: "node-a", Mode: hostinstall.Proxy, Listen: "unix:///run/kubecri/kubecri.sock", Unit: "u", Program: "p"})
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{}
	for _, stage := range p.Stages {
		for _, c := range stage.Changes {
			if before, there := h.Files[c.Path]; there && before == *c.Before {
				changed[c.Path] = *c.After
			}
		}
	}
	for file, want := range map[string]string{
		"/var/lib/kubelet/config.yaml":          strings.ReplaceAll(h.Files["/var/lib/kubelet/config.yaml"], "containerd/containerd", "kubecri/kubecri"),
		"/var/lib/kubelet/instance-config.yaml": "containerRuntimeEndpoint: \"unix:///run/kubecri/kubecri.sock\"\n",
	} {
		if diff := cmp.Diff(want, changed[file]); diff != "" || !strings.Contains(changed[file], "kubecri.sock") {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	if p.RuntimeEndpoint != "unix:///run/containerd/containerd.sock" || len(changed) != 2 {
		t.Errorf("the runtime is %s, changed are %d files: %s", p.RuntimeEndpoint, len(changed), fmt.Sprint(changed))
	}
}
