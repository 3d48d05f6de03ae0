package kubeletargs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

func TestIgnore(t *testing.T) {
	for _, test := range []struct {
		name    string
		args    string
		ours    string // as they are read
		ignored Ignored
	}{
		{"ours alone", "--listen=/a --kubeconfig /k check", "listen=/a kubeconfig=/k check", Ignored{}},
		{"value in the next argument", "--node-ip 10.0.0.1 --listen /a", "listen=/a",
			Ignored{Kubelet: []string{"node-ip"}}},
		{"value after =", "--max-pods=5 check", "check", Ignored{Kubelet: []string{"max-pods"}}},
		{"a switch swallows nothing", "--fail-swap-on check", "check", Ignored{Kubelet: []string{"fail-swap-on"}}},
		{"a value looks like a flag", "--kubeconfig --v=3 --node-ip --listen --v=2", "kubeconfig=--v=3 v=2",
			Ignored{Kubelet: []string{"node-ip"}}},
		{"underscores", "--hostname_override=a --node_ip=1", "hostname-override=a",
			Ignored{Kubelet: []string{"node-ip"}}},
		{"former kubelets", "--container-runtime=remote --network-plugin cni --v=2", "v=2",
			Ignored{Past: []string{"container-runtime", "network-plugin"}}},
		{"kubelets to come", "--new-thing on --other-thing --v=2 --last", "v=2", Ignored{Unknown: []string{"new-thing",
			"other-thing", "last"}}},
		{"end of flags", "--v=2 -- --node-ip=1", "v=2 --node-ip=1", Ignored{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			set := pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
			set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
			set.ParseErrorsAllowlist.UnknownFlags = true
			var ours []string
			names := []string{"listen", "kubeconfig", "hostname-override", "v"}
			for _, name := range names {
				set.String(name, "", "")
			}
			if diff := cmp.Diff(test.ignored, Ignore(set, strings.Fields(test.args))); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
			if err := set.Parse(strings.Fields(test.args)); err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if f := set.Lookup(name); f.Changed {
					ours = append(ours, name+"="+f.Value.String())
				}
			}
			if diff := cmp.Diff(strings.Fields(test.ours), append(ours, set.Args()...)); diff != "" {
				t.Errorf("ours (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlagsOfTodayAreNotOfThePast(t *testing.T) {
	for _, name := range Flags() {
		if _, past := pastFlags[name]; past {
			t.Errorf("--%s is in both lists", name)
		}
	}
}

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestEndpointsOfTheConfiguration(t *testing.T) {
	for _, test := range []struct {
		name    string
		file    string
		dropIns map[string]string
		want    Configuration // without from and Healthz
		says    string        // part of the error
	}{
		{name: "from the file", file: header + "containerRuntimeEndpoint: " +
			"unix:///run/kubecri.sock\nfieldToCome: {a: 1}\n",
			want: Configuration{Runtime: "unix:///run/kubecri.sock"}},
		{name: "both", file: header + "containerRuntimeEndpoint: unix:///run/kubecri.sock\nimageServiceEndpoint: unix:///run/images.sock\n",
			want: Configuration{Runtime: "unix:///run/kubecri.sock", Images: "unix:///run/images.sock"}},
		{name: "none", file: header},
		{name: "the last drop-in wins", file: header + "containerRuntimeEndpoint: unix:///a\n",
			dropIns: map[string]string{"20-b.conf": header + "containerRuntimeEndpoint: unix:///c\n",
				"10-a.conf": header + "containerRuntimeEndpoint: unix:///b\nimageServiceEndpoint: unix:///i\n", "30-c.conf": header, "90.yaml": "not: read"},
			want: Configuration{Runtime: "unix:///c", Images: "unix:///i"}},
		{name: "something else", file: "apiVersion: v1\nkind: Pod\n", says: `"Pod"`},
		{name: "no YAML", file: "a: b: c", says: "not a KubeletConfiguration"},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := t.TempDir()
			write := func(path, text string) {
				t.Helper()
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file, dir := filepath.Join(base, "config.yaml"), ""
			write(file, test.file)
			if test.dropIns != nil {
				dir = t.TempDir()
				for name, text := range test.dropIns {
					write(filepath.Join(dir, name), text)
				}
			}
			got, err := Arguments{Config: file, ConfigDir: dir}.Configuration("")
			if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("error %v, want one that says %q", err, test.says)
			}
			if got.Runtime != test.want.Runtime || got.Images != test.want.Images {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got, err := (Arguments{}).Configuration(""); got.Runtime+got.Images != "" || err != nil {
		t.Errorf("without a file: %+v, %v", got, err)
	}
}
