package install

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/kubecri/install/hostinstall"
	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
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
	former := map[string]string{hostinstall.EnvFile: "NODE_NAME=node-b\nKUBECONFIG=/former\n"}
	for name, test := range map[string]struct {
		options          installOptions
		files            map[string]string
		node, kubeconfig string
		says             string
	}{
		"the kubelet's":    {node: "node-a", kubeconfig: "/etc/kubernetes/kubelet.conf"},
		"a former install": {files: former, node: "node-b", kubeconfig: "/former"},
		"said":             {options: installOptions{want: hostinstall.Want{NodeName: "node-c", Kubeconfig: "/said"}}, files: former, node: "node-c", kubeconfig: "/said"},
	} {
		t.Run(name, func(t *testing.T) {
			o := test.options
			if err := o.complete(hostinstall.Host{Files: test.files, Kubelet: hostinstall.Kubelet{Args: kubelet}}); err != nil {
				t.Fatal(err)
			}
			if o.want.NodeName != test.node || o.want.Kubeconfig != test.kubeconfig || len(o.want.Program) != 64 || !strings.Contains(o.want.Unit, "ExecStart="+hostinstall.Program) {
				t.Errorf("%+v", o.want)
			}
		})
	}
	o := installOptions{}
	if err := o.complete(hostinstall.Host{}); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("no kubeconfig: %v", err)
	}
}

func TestLeftByKubecri(t *testing.T) {
	got := leftByKubecri(map[string]string{"STATE_DIR": "/s", "KUBECRI_ARGS": "--v=2 --discovery-handlers-directory /h"}, "unix:///run/k.sock")
	want := cleanup.Paths{StateDir: "/s", CDIDir: "/var/run/cdi", HandlersDir: "/h", Listen: "/run/k.sock",
		Empty: []string{"/run/kubeslot/plugins/devices", "/run/kubeslot/plugins", "/run/kubeslot"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := leftByKubecri(map[string]string{"KUBECRI_ARGS": "--discovery-handlers-directory=/a --discovery-handlers-directory=/b"}, ""); got.HandlersDir != "/b" {
		t.Errorf("%+v", got)
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
