package install

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/kubecri/install/hostinstall"
	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
	akrifake "github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "yesterday\n": false} {
		var out bytes.Buffer
		if got, err := confirm(strings.NewReader(answer), &out); got != want || err != nil {
			t.Errorf("%q: %t, %v", answer, got, err)
		}
		if want == strings.Contains(out.String(), "Nothing was changed") {
			t.Errorf("%q: %s", answer, out.String())
		}
	}
	if got, err := confirm(strings.NewReader(""), &bytes.Buffer{}); got || err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("no answer: %t, %v", got, err)
	}
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	if got, err := confirm(pipe, &bytes.Buffer{}); got || err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("nobody to ask: %t, %v", got, err)
	}
}

// What is not said is a former install's, or the kubelet's.
func TestCompleteInstall(t *testing.T) {
	kubelet := kubeletargs.Arguments{HostnameOverride: "Node-A", Kubeconfig: "/etc/kubernetes/kubelet.conf"}
	defaults := hostinstall.Want{NodeName: "node-a", Kubeconfig: "/etc/kubernetes/kubelet.conf", Mode: "proxy",
		Listen: "unix:///run/kubecri/kubecri.sock", StateDir: "/var/lib/kubecri", CDIDir: "/var/run/cdi"}
	former := map[string]string{hostinstall.EnvFile: "NODE_NAME=node-b\nKUBECONFIG=/former\nLISTEN=unix:///f.sock\n" +
		"STATE_DIR=/f/state\nCDI_DIR=\nKUBECRI_ARGS=--mode=nri --nri-socket=/f/nri.sock\n"}
	before := hostinstall.Want{NodeName: "node-b", Kubeconfig: "/former", Mode: "nri", Listen: "unix:///f.sock",
		StateDir: "/f/state"}
	said, empty := before, ""
	said.NodeName, said.Mode, said.CDIDir, said.Args = "node-c", "proxy", "/cdi", &empty
	lost := defaults
	lost.Mode = "nri"
	for name, test := range map[string]struct {
		args   []string
		files  map[string]string
		record *hostinstall.Record
		want   hostinstall.Want
		nri    string
	}{
		"the kubelet's":    {want: defaults, nri: "/var/run/nri/nri.sock"},
		"a former install": {files: former, want: before, nri: "/f/nri.sock"},
		"said": {args: []string{"--node-name=node-c", "--mode=proxy", "--cdi-dir=/cdi", "--args="}, files: former,
			want: said, nri: "/var/run/nri/nri.sock"},
		"a former install that lost its environment": {record: &hostinstall.Record{Mode: "nri"}, want: lost,
			nri: "/var/run/nri/nri.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			o := installOptions{}
			flags := pflag.NewFlagSet("install", pflag.ContinueOnError)
			o.addInstall(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			host := hostinstall.Host{Files: test.files, Record: test.record}
			host.Kubelet.Args = kubelet
			if err := o.complete(host); err != nil {
				t.Fatal(err)
			}
			if len(o.want.Program) != 64 || !strings.Contains(o.want.Unit, "ExecStart="+hostinstall.Program) {
				t.Errorf("program %q, unit\n%s", o.want.Program, o.want.Unit)
			}
			o.want.Program, o.want.Unit = "", ""
			if diff := cmp.Diff(test.want, o.want); diff != "" || o.nriSocket != test.nri {
				t.Errorf("NRI socket %s, (-want +got):\n%s", o.nriSocket, diff)
			}
		})
	}
	o := installOptions{}
	o.addInstall(pflag.NewFlagSet("install", pflag.ContinueOnError))
	if err := o.complete(hostinstall.Host{}); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("no kubeconfig: %v", err)
	}
}

// A node that was deleted before is no reason to leave anything.
func TestNodeReady(t *testing.T) {
	there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	kube := fake.NewClientset(there)
	for name, want := range map[string]bool{"node-a": true, "node-b": false} {
		if ready, err := nodeReady(t.Context(), kube, name); ready != want || err != nil {
			t.Errorf("%s: %t, %v", name, ready, err)
		}
	}
	kube.PrependReactor("get", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	if ready, err := nodeReady(t.Context(), kube, "node-a"); ready || err == nil {
		t.Errorf("an API server that is away: %t, %v", ready, err)
	}
}

func TestLeftByKubecri(t *testing.T) {
	args := "--v=2 --discovery-handlers-directory /h --kubelet-device-plugin-dir=/k/device-plugins"
	got := leftByKubecri(map[string]string{"STATE_DIR": "/s", "KUBECRI_ARGS": args}, "unix:///run/k.sock")
	want := cleanup.Paths{StateDir: "/s", CDIDir: "/var/run/cdi", HandlersDir: "/h", Listen: "/run/k.sock",
		KubeletDir: "/k", Empty: []string{"/run/kubeslot/plugins/devices", "/run/kubeslot/plugins", "/run/kubeslot",
			"/run/kubecri", "/var/lib/kubecri"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := leftByKubecri(map[string]string{"KUBECRI_ARGS": "--discovery-handlers-directory=/a --discovery-handlers-directory=/b"}, ""); got.HandlersDir != "/b" {
		t.Errorf("%+v", got)
	}
}

// An install that fails removes what its kubecri wrote: no files of others, nor what the API has of a former kubecri.
func TestTidy(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"theirs", "sub/theirs"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := cleanup.Paths{StateDir: dir}
	if err := noteState(&left); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "checkpoint.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	claims := akrifake.NewSimpleClientset(&v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cam-8120fe-0"},
		Spec: v1alpha1.SlotClaimSpec{NodeName: "node-a"}})
	api := &connection.Clients{Kube: fake.NewClientset(), Client: claims}
	o := installOptions{want: hostinstall.Want{NodeName: "node-a"}}
	var out bytes.Buffer
	if err := o.tidy(t.Context(), &out, hostinstall.Host{}, left, true, api); err != nil {
		t.Fatal(err)
	}
	if list, err := claims.KubeslotV1alpha1().SlotClaims().List(t.Context(), metav1.ListOptions{}); err != nil ||
		len(list.Items) != 1 {
		t.Errorf("claims %v, %v", list, err)
	}
	want := "  removed " + dir + "/checkpoint.json\nWhat the API server has of node node-a stays"
	if !strings.HasPrefix(
		out.String(), want) || strings.Contains(out.String(), "theirs") {
		t.Errorf("it says\n%swant %s", &out, want)
	}
	for _, file := range []string{"theirs", "sub/theirs"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
}

// What would be over before anything is done is refused.
func TestTimeoutsOfNothing(t *testing.T) {
	for _, timeout := range []string{"0", "-1s"} {
		for _, args := range [][]string{{"install"}, {"uninstall"},
			{"cleanup", "--files-only", "--yes", "--host-root=" + t.TempDir()}} {
			code := 0
			root := &cobra.Command{}
			root.AddCommand(Commands(&code)...)
			root.SetArgs(append(args, "--timeout="+timeout))
			var out bytes.Buffer
			root.SetErr(&out)
			root.SetOut(&out)
			if err := root.Execute(); err != nil || code != 1 || !strings.Contains(out.String(), "want more than 0s") {
				t.Errorf("%s --timeout=%s: %v, exit code %d: %s", args[0], timeout, err, code, out.String())
			}
		}
	}
}

// The command cleans files up, and says what it removed.
func TestCleanupFiles(t *testing.T) {
	root := t.TempDir()
	spec := filepath.Join(root, "var/run/cdi/kubeslot-cam-8120fe.json")
	if err := os.MkdirAll(filepath.Dir(spec), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spec, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code := 0
	cmd := newCleanupCommand(&code)
	cmd.SetArgs([]string{"--yes", "--files-only", "--node-name=node-a", "--host-root=" + root})
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil || code != 0 {
		t.Fatalf("%v, exit code %d", err, code)
	}
	if !strings.Contains(out.String(), "removed /var/run/cdi/kubeslot-cam-8120fe.json") || !strings.Contains(out.String(), "nothing left") {
		t.Error(out.String())
	}
	if _, err := os.Stat(spec); err == nil {
		t.Error("the file is still there")
	}
}
