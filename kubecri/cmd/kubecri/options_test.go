package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery/udev"
	"github.com/kubeslot/kubeslot/discovery/uevent"
	"github.com/kubeslot/kubeslot/discovery/usb"
	"github.com/kubeslot/kubeslot/test/docs"
)

func TestOptionsAreCheckedBeforeAnythingStarts(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want []string // parts of the error; nil for none
	}{
		{name: "defaults", args: []string{"--node-name=node-a"}},
		{name: "node name", args: []string{"--node-name=A_b"}, want: []string{"--node-name", `"A_b"`}},
		{name: "endpoints", args: []string{"--listen=tcp://1.2.3.4:5", "--runtime-endpoint="}, want: []string{"--listen", "--runtime-endpoint"}},
		{name: "the kubelet's endpoint is still the runtime's", args: []string{"--container-runtime-endpoint=unix:///run/containerd/containerd.sock"}, want: []string{"containerRuntimeEndpoint"}},
		{name: "no such kubelet configuration", args: []string{"--config=/does/not/exist"}, want: []string{"--config", "/does/not/exist"}},
		{name: "one endpoint for both", args: []string{"--listen=/run/a.sock", "--runtime-endpoint=unix:///run/a.sock"}, want: []string{"both /run/a.sock"}},
		{name: "image service", args: []string{"--image-service-endpoint=images.sock"}, want: []string{"--image-service-endpoint", "images.sock"}},
		{name: "kubeconfig", args: []string{"--kubeconfig=/does/not/exist"}, want: []string{"--kubeconfig", "/does/not/exist"}},
		{name: "durations", args: []string{"--claim-grace=-1s", "--claim-resync=0s"}, want: []string{"--claim-grace", "--claim-resync"}},
		{name: "metrics off", args: []string{"--metrics-bind-address=0"}},
		{name: "metrics on all addresses", args: []string{"--metrics-bind-address=:10349"}},
		{name: "metrics port", args: []string{"--metrics-bind-address=127.0.0.1:0"}, want: []string{"--metrics-bind-address", "port"}},
		{name: "metrics address", args: []string{"--metrics-bind-address=10349"}, want: []string{"--metrics-bind-address", "host:port"}},
		{name: "tracing", args: []string{"--tracing-endpoint=127.0.0.1:4317", "--tracing-sampling-rate-per-million=1000000"}},
		{name: "tracing endpoint", args: []string{"--tracing-endpoint=collector"}, want: []string{"--tracing", `"collector"`, "host:port"}},
		{name: "tracing rate", args: []string{"--tracing-endpoint=a:1", "--tracing-sampling-rate-per-million=1000001"}, want: []string{"1000001"}},
		{name: "a directory of device plugins", args: []string{"--cridevices=" + t.TempDir(), "--cridevices-bad-plugins=skip"}},
		{name: "a directory that somebody named, and is not there", args: []string{"--cridevices=/does/not/exist"}, want: []string{"--cridevices", "/does/not/exist"}},
		{name: "device plugins' time", args: []string{"--cridevices-timeout=0s"}, want: []string{"--cridevices-timeout"}},
		{name: "plugins of sockets", args: []string{"--plugin-sockets=/run/p", "--plugin-policy=a=ignore,b=required",
			"--plugin-timeout=1s"}},
		{name: "no sockets", args: []string{"--plugin-sockets="}},
		{name: "sockets' directory", args: []string{"--plugin-sockets=here"}, want: []string{"--plugin-sockets", `"here"`}},
		{name: "sockets' time", args: []string{"--plugin-timeout=31s"},
			want: []string{"--plugin-timeout", "--cridevices-timeout"}},
		{name: "no CDI", args: []string{"--cdi-dir="}},
		{name: "CDI dir", args: []string{"--cdi-dir=here"}, want: []string{"--cdi-dir"}},
		{name: "state dir", args: []string{"--state-dir=here"}, want: []string{"--state-dir"}},
		{name: "no handlers", args: []string{"--discovery-handlers=", "--discovery-handlers-directory="}},
		{name: "some handlers", args: []string{"--discovery-handlers=udev,debugEcho", "--handler-allowed-paths=/dev,onvif=,debugEcho=/srv/x"}},
		{name: "an unknown handler", args: []string{"--discovery-handlers=udev,zigbee"}, want: []string{"--discovery-handlers", `"zigbee"`, "debugEcho, udev"}},
		{name: "handlers' directory", args: []string{"--discovery-handlers-directory=here"}, want: []string{"--discovery-handlers-directory"}},
		{name: "allowed paths", args: []string{"--handler-allowed-paths=/dev/../etc,udev=dev"}, want: []string{"--handler-allowed-paths", "..", `"udev=dev"`}},
		{name: "grace", args: []string{"--handler-grace=0s", "--handler-grace-local=-1s"}, want: []string{"--handler-grace:", "--handler-grace-local:"}},
		{name: "trees", args: []string{"--sysfs=sys", "--udev-data=data", "--dev=dev"}, want: []string{"--sysfs", "--udev-data", "--dev:"}},
		{name: "mode", args: []string{"--mode=cri"}, want: []string{"--mode", `"cri"`, "proxy, nri or device-plugin"}},
		{name: "device plugins of the kubelet", args: []string{"--mode=device-plugin", "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"}},
		{name: "the kubelet's directories", args: []string{"--mode=device-plugin", "--kubelet-device-plugin-dir=plugins", "--kubelet-pod-resources-socket=kubelet.sock"},
			want: []string{"--kubelet-device-plugin-dir", `"plugins"`, "--kubelet-pod-resources-socket"}},
		{name: "NRI", args: []string{"--mode=nri", "--nri-socket=/run/nri.sock", "--nri-plugin-name=kubecri", "--nri-plugin-index=07"}},
		{name: "NRI, at the kubelet's runtime", args: []string{"--mode=nri", "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"}},
		{name: "NRI plugin", args: []string{"--mode=nri", "--nri-socket=nri.sock", "--nri-plugin-name=a/b", "--nri-plugin-index=7"},
			want: []string{"--nri-socket", "--nri-plugin-name", "a/b", `"7"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOptions()
			set := pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
			for _, group := range o.flags().FlagSets {
				set.AddFlagSet(group)
			}
			if err := set.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			err := o.complete()
			if (err != nil) != (test.want != nil) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestHelpGroupsTheFlags(t *testing.T) {
	command, err := docs.Command("../../..", "docs/install.md", "kubecri --help")
	if err != nil {
		t.Fatal(err)
	}
	cmd := newCommand(strings.Fields(command)[1:], nil)
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"CRI flags:", "Cluster flags:", "Slots flags:", "Kubelet flags:", "Operations flags:", "Discovery flags:", "--hostname-override", "--runtime-endpoint", "--logging-format"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("--help does not show %q", part)
		}
	}
}

// A kubelet's unit, with only the program replaced, says all that is needed; what
// is said to kubecri itself wins.
func TestKubeletsArguments(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/from-config.sock\nimageServiceEndpoint: unix:///run/images.sock\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name                 string
		args                 []string
		listen, node, images string
	}{
		{"from the configuration", []string{"--config=" + config, "--hostname-override=Node-A", "--node-ip", "10.0.0.1", "--fail-swap-on=false", "--container-runtime=remote"},
			"unix:///run/from-config.sock", "node-a", "unix:///run/images.sock"},
		{"the kubelet's flag wins over its configuration", []string{"--config", config, "--container-runtime-endpoint", "/run/from-flag.sock", "--hostname-override", "a", "--image-service-endpoint", "/run/images2.sock"},
			"/run/from-flag.sock", "a", "/run/images2.sock"},
		{"ours win over the kubelet's", []string{"--container-runtime-endpoint=/run/from-flag.sock", "--listen=/run/ours.sock", "--node-name=b", "--hostname-override=a", "--config=" + config, "--image-service-endpoint=/run/images2.sock"},
			"/run/ours.sock", "b", "/run/images2.sock"},
		{"images where we listen are the runtime's", []string{"--node-name=c", "--listen=/run/images.sock", "--config=" + config},
			"/run/images.sock", "c", ""},
		{"images where the runtime is", []string{"--node-name=c", "--runtime-endpoint=/run/images.sock", "--image-service-endpoint=unix:///run/images.sock"},
			"unix:///run/kubecri/kubecri.sock", "c", ""},
		{"none", []string{"--node-name=c"}, "unix:///run/kubecri/kubecri.sock", "c", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, cmd := newOptions(), &cobra.Command{RunE: func(*cobra.Command, []string) error { return nil }}
			addFlags(cmd, o.flags())
			setArgs(cmd, cmd, append(test.args, "--kubelet-args-compat"))
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			if err := o.complete(); err != nil {
				t.Fatal(err)
			}
			if o.listen != test.listen || o.nodeName != test.node || o.imageEndpoint != test.images {
				t.Errorf("listens on %q as node %q with images at %q, want %q, %q and %q", o.listen, o.nodeName, o.imageEndpoint, test.listen, test.node, test.images)
			}
		})
	}
}

// A flag that does not exist is an error, unless kubecri has the kubelet's command line.
func TestUnknownFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		want []string // parts of the error; none for no error
	}{
		{"--node-name=a --lisen=/run/x.sock", []string{"--lisen", "is --listen meant?"}},
		{"--node-name=a --fail-swap-on=false", []string{"--fail-swap-on", "--kubelet-args-compat"}},
		{"--node-name=a --node-ip 1", []string{"--node-ip", "--kubelet-args-compat"}},
		{"--node-name=a --nothing-like-this", []string{"unknown flag: --nothing-like-this"}},
		{"--kubelet-args-compat=false --node-ip=1", []string{"--node-ip", "--kubelet-args-compat"}},
		{"--kubelet-args-compat=perhaps", []string{"--kubelet-args-compat"}},
		{"--listen=--kubelet-args-compat --node-ip=1", []string{"--node-ip"}},
		{"--node-name=a --lisen=/run/x.sock --node-ip 1 --kubelet-args-compat", nil},
		{"--kubelet-args-compat=true --node-ip=1", nil},
		{"--kubelet-args-compat --node-name=a", nil},
		{"check --node-ip=1", []string{"--node-ip", "--kubelet-args-compat"}},
		{"install --node-nam=1", []string{"--node-nam"}},
	} {
		t.Run(test.args, func(t *testing.T) {
			code := 0
			cmd := newCommand(strings.Fields(test.args), &code)
			cmd.RunE = func(*cobra.Command, []string) error { return nil }
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.Execute()
			if (err != nil) != (len(test.want) > 0) {
				t.Fatalf("got error %v, want one that says %q", err, test.want)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestCheckTellsByItsExitCode(t *testing.T) {
	kubeconfig := unreachableAPI(t, t.TempDir())
	code := 0
	cmd := newCommand([]string{"check", "--node-name=a", "--kubeconfig", kubeconfig, "--runtime-endpoint=/does/not/exist.sock", "--image-service-endpoint=/nor/this.sock", "--kubelet-args-compat", "--fail-swap-on", "--node-ip", "1"}, &code)
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if code != 2 || !strings.Contains(out.String(), "FAIL  runtime") || !strings.Contains(out.String(), "FAIL  images     /nor/this.sock") || !strings.Contains(out.String(), "FAIL  API") {
		t.Errorf("exit code %d and:\n%s", code, out.String())
	}
	if err := newCommand([]string{"check", "--node-name=A_b"}, &code).Execute(); err == nil {
		t.Error("a wrong command line is no error")
	}
}

// Each handler has the name that it is selected by, and those that are not named do not run.
func TestBuiltInHandlers(t *testing.T) {
	for args, want := range map[string][]string{
		"":                                    builtInNames(),
		"--discovery-handlers=udev,debugEcho": {"debugEcho", "udev"},
		"--discovery-handlers=":               nil,
	} {
		o, set := newOptions(), pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
		for _, group := range o.flags().FlagSets {
			set.AddFlagSet(group)
		}
		if err := set.Parse(strings.Fields("--node-name=a --discovery-handlers-directory= --discovery-worker=none " +
			args)); err != nil {
			t.Fatal(err)
		}
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		registry, server, err := o.sources(t.Context(), nil)
		if err != nil || server != nil {
			t.Fatal(server, err)
		}
		var names []string
		for _, name := range builtInNames() {
			sources, _ := registry.Sources(name)
			for _, source := range sources {
				names = append(names, source.Handler.Name())
				var monitor *uevent.Monitor
				switch h := source.Handler.(type) {
				case *udev.Handler:
					monitor = h.Monitor
				case *usb.Handler:
					monitor = h.Monitor
				default:
					continue
				}
				if monitor == nil || monitor != o.discovery.monitor {
					t.Errorf("%s does not use the shared monitor", name)
				}
			}
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: handlers %q, want %q", args, names, want)
		}
	}
}

// Flags of the kubelet are passed over by kubecri, and by nothing that changes the host.
func TestMisspeltFlagsOfInstall(t *testing.T) {
	for _, name := range []string{"install", "uninstall", "cleanup"} {
		code := 0
		cmd := newCommand([]string{name, "--yse"}, &code)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "unknown flag: --yse") {
			t.Errorf("%s --yse: %v", name, err)
		}
	}
}
