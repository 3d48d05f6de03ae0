package hostinstall

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
)

const (
	containerd = "unix:///run/containerd/containerd.sock"
	crio       = "unix:///var/run/crio/crio.sock"
	ours       = "unix:///run/kubecri/kubecri.sock"

	header      = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	configFile  = "/var/lib/kubelet/config.yaml"
	kubeadmEnv  = "/var/lib/kubelet/kubeadm-flags.env"
	extraEnv    = "/etc/default/kubelet"
	vendorUnit  = "/usr/lib/systemd/system/kubelet.service"
	kubeadmUnit = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
	adminUnit   = "/etc/systemd/system/kubelet.service"
	dropIn      = "/etc/systemd/system/kubelet.service.d/20-runtime.conf"
	configDrop  = "/etc/kubernetes/kubelet.conf.d/10-runtime.conf"

	instanceConfig = kubeletargs.InstanceConfig
)

// kubeadmDropIn is of kubeadm's package, as its files are named.
const kubeadmDropIn = `# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# This is a file that "kubeadm init" and "kubeadm join" generates at runtime, populating the KUBELET_KUBEADM_ARGS variable dynamically
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

// host is a scenario: the files of the command line and of the configuration, in
// their order, with what the kubelet was started with.
type host struct {
	line, config []string
	files        map[string]string
	flag         string // of the running kubelet
}

// kubeadmHost has the files of kubeadm's package beside these.
func kubeadmHost(flag string, files map[string]string) host {
	h := host{flag: flag, line: []string{vendorUnit, kubeadmUnit, kubeadmEnv, extraEnv}, config: []string{configFile}, files: map[string]string{
		vendorUnit: "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n", kubeadmUnit: kubeadmDropIn}}
	maps.Copy(h.files, files)
	if _, has := files[instanceConfig]; has {
		h.config = append(h.config, instanceConfig)
	}
	return h
}

func (h host) look() Host {
	return Host{Systemd: true, Files: maps.Clone(h.files), Kubelet: Kubelet{
		Unit: "kubelet.service", Found: true, Running: true, CommandLine: h.line, Config: h.config,
		Args: kubeletargs.Arguments{Config: configFile, RuntimeEndpoint: h.flag, Kubeconfig: "/etc/kubernetes/kubelet.conf"},
	}}
}

var want = Want{NodeName: "node-a", Mode: Proxy, Kubeconfig: "/etc/kubeslot/kubecri.kubeconfig", Listen: ours,
	StateDir: "/var/lib/kubecri", CDIDir: "/var/run/cdi", Unit: "[Unit]\nBefore=kubelet.service\n", Program: "hash-1"}

var scenarios = map[string]struct {
	host
	runtime string
	// changed are the files of the kubelet that install changes.
	changed map[string]string
}{
	"kubeadm 1.34 and newer": {
		kubeadmHost("", map[string]string{
			kubeadmEnv:     "KUBELET_KUBEADM_ARGS=\"\"\n",
			configFile:     header + "cgroupDriver: systemd\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\nstaticPodPath: /etc/kubernetes/manifests\n",
			instanceConfig: "containerRuntimeEndpoint: \"unix:///run/containerd/containerd.sock\"\n",
		}), containerd, map[string]string{
			configFile:     header + "cgroupDriver: systemd\ncontainerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock\nstaticPodPath: /etc/kubernetes/manifests\n",
			instanceConfig: "containerRuntimeEndpoint: \"unix:///run/kubecri/kubecri.sock\"\n",
		}},
	"kubeadm 1.33 and older": {
		kubeadmHost(containerd, map[string]string{
			kubeadmEnv: "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.10\"\n",
			configFile: header + "containerRuntimeEndpoint: \"\"\n",
		}), containerd, map[string]string{
			kubeadmEnv: "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/kubecri/kubecri.sock --pod-infra-container-image=registry.k8s.io/pause:3.10\"\n",
		}},
	"KUBELET_EXTRA_ARGS win": {
		kubeadmHost(crio, map[string]string{
			kubeadmEnv: "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock\"\n",
			extraEnv:   "# --container-runtime-endpoint=unix:///commented\nKUBELET_EXTRA_ARGS=--node-ip=10.0.0.1 --container-runtime-endpoint unix:///var/run/crio/crio.sock\n",
			configFile: header,
		}), crio, map[string]string{
			kubeadmEnv: "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/kubecri/kubecri.sock\"\n",
			extraEnv:   "# --container-runtime-endpoint=unix:///commented\nKUBELET_EXTRA_ARGS=--node-ip=10.0.0.1 --container-runtime-endpoint unix:///run/kubecri/kubecri.sock\n",
		}},
	"a flag in a variable that nothing uses": {
		kubeadmHost("", map[string]string{
			extraEnv: "OLD_ARGS=--container-runtime-endpoint=unix:///var/run/crio/crio.sock\n", configFile: header,
		}), containerd, map[string]string{
			extraEnv:   "OLD_ARGS=--container-runtime-endpoint=unix:///run/kubecri/kubecri.sock\n",
			configFile: header + "containerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock\n",
		}},
	"kubeadm's own copy says something else": {
		kubeadmHost("", map[string]string{
			configFile: header + "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n", instanceConfig: "containerRuntimeEndpoint: " + containerd + "\n",
		}), crio, map[string]string{
			configFile: header + "containerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock\n", instanceConfig: "containerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock\n",
		}},
	"kubeadm's own copy alone": {
		kubeadmHost("", map[string]string{configFile: header, instanceConfig: "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n"}), containerd,
		map[string]string{
			configFile: header + "containerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock\n", instanceConfig: "containerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock\n",
		}},
	"nothing says it": {
		kubeadmHost("", map[string]string{configFile: strings.TrimSuffix(header, "\n")}), containerd,
		map[string]string{configFile: header + "containerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock\n"}},
	"a drop-in of the configuration": {
		host{line: []string{adminUnit}, config: []string{configFile, configDrop}, files: map[string]string{
			adminUnit: "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubernetes/kubelet.conf.d\n", configFile: header,
			configDrop: header + "# ours\ncontainerRuntimeEndpoint: unix:///var/run/crio/crio.sock # the runtime\n"}}, crio,
		map[string]string{configDrop: header + "# ours\ncontainerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock # the runtime\n"}},
	"a drop-in of the unit": {
		host{flag: crio, line: []string{vendorUnit, dropIn}, config: []string{configFile}, files: map[string]string{vendorUnit: "[Service]\nExecStart=/usr/bin/kubelet $ARGS\n", configFile: header,
			dropIn: "[Service]\nEnvironment=\"ARGS=--config=/var/lib/kubelet/config.yaml --container-runtime-endpoint=unix:///var/run/crio/crio.sock\"\n"}}, crio,
		map[string]string{dropIn: "[Service]\nEnvironment=\"ARGS=--config=/var/lib/kubelet/config.yaml --container-runtime-endpoint=unix:///run/kubecri/kubecri.sock\"\n"}},
	"a unit of one's own, lines continued": {
		host{flag: "/run/containerd/containerd.sock", line: []string{adminUnit}, config: []string{configFile}, files: map[string]string{configFile: header,
			adminUnit: "[Service]\nExecStart=/usr/bin/kubelet \\\n  --container_runtime_endpoint=/run/containerd/containerd.sock\\\n  --config=/var/lib/kubelet/config.yaml\n"}}, "/run/containerd/containerd.sock",
		map[string]string{adminUnit: "[Service]\nExecStart=/usr/bin/kubelet \\\n  --container_runtime_endpoint=unix:///run/kubecri/kubecri.sock\\\n  --config=/var/lib/kubelet/config.yaml\n"}},
	"JSON": {
		host{line: []string{adminUnit}, config: []string{configFile}, files: map[string]string{adminUnit: "[Service]\n",
			configFile: `{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "containerRuntimeEndpoint": "unix:///var/run/crio/crio.sock"}`}}, crio,
		map[string]string{configFile: `{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "containerRuntimeEndpoint": "unix:///run/kubecri/kubecri.sock"}`}},
}

func TestInstall(t *testing.T) {
	for name, test := range scenarios {
		t.Run(name, func(t *testing.T) {
			s := &simulated{test.look()}
			p := s.install(t, want)
			if p.RuntimeEndpoint != test.runtime || p.Endpoint != ours {
				t.Errorf("the runtime is %s and the kubelet gets %s, want %s and %s", p.RuntimeEndpoint, p.Endpoint, test.runtime, ours)
			}
			s.apply(t, p, -1)
			expected := maps.Clone(test.files)
			maps.Copy(expected, test.changed)
			expected[Program], expected[UnitFile] = "hash-1", want.Unit
			expected[EnvFile] = "NODE_NAME=node-a\nKUBECONFIG=/etc/kubeslot/kubecri.kubeconfig\nLISTEN=" + ours + "\nRUNTIME_ENDPOINT=" + test.runtime + "\nSTATE_DIR=/var/lib/kubecri\nCDI_DIR=/var/run/cdi\n"
			got := maps.Clone(s.Files)
			delete(got, RecordFile)
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if s.Record == nil || !s.Record.Done {
				t.Errorf("record %+v", s.Record)
			}
			if again := s.install(t, want); !again.Empty() {
				t.Errorf("a second install has something to do: %+v", again.Stages)
			}
			s.uninstall(t, test.files)
		})
	}
}

// Wherever an install is interrupted, the next one completes it, and uninstall brings
// back what was before.
func TestInterrupted(t *testing.T) {
	for name, test := range scenarios {
		changes := 0
		for _, stage := range (&simulated{test.look()}).install(t, want).Stages {
			changes += len(stage.Changes)
		}
		for n := range changes {
			t.Run(fmt.Sprintf("%s, after %d changes", name, n), func(t *testing.T) {
				for _, complete := range []bool{false, true} {
					s := &simulated{test.look()}
					s.apply(t, s.install(t, want), n)
					if complete {
						p := s.install(t, want)
						if p.RuntimeEndpoint != test.runtime {
							t.Errorf("the runtime is now %s", p.RuntimeEndpoint)
						}
						if n > 0 && p.Stages[len(p.Stages)-2].Await != Healthy {
							t.Errorf("the kubelet is not restarted: %+v", p.Stages)
						}
						s.apply(t, p, -1)
					} else if n == 0 {
						continue
					}
					s.uninstall(t, test.files)
				}
			})
		}
	}
}

// Wherever an uninstall is interrupted, the next one knows where kubecri had its files, and completes it. It
// does not go back once kubecri may be stopped.
func TestUninstallInterrupted(t *testing.T) {
	for name, test := range scenarios {
		for n := 0; ; n++ {
			s := &simulated{test.look()}
			s.apply(t, s.install(t, want), -1)
			environment := s.Environment()
			p, err := Uninstall(s.Host, "")
			if err != nil {
				t.Fatal(err)
			}
			changes := 0
			for i, stage := range p.Stages {
				changes += len(stage.Changes)
				if last := i == len(p.Stages)-1; stage.Final != last {
					t.Errorf("%s: stage %d of %d is final: %t", name, i+1, len(p.Stages), stage.Final)
				}
			}
			if n > changes {
				break
			}
			s.apply(t, p, n)
			if p, err = Uninstall(s.Host, ""); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(environment, p.Environment); diff != "" {
				t.Errorf("%s, after %d changes: the environment (-before +now):\n%s", name, n, diff)
			}
			s.uninstall(t, test.files)
		}
	}
}

// kubeadm upgrade makes files anew while kubecri is installed.
func TestKubeadmUpgrade(t *testing.T) {
	test := scenarios["kubeadm 1.33 and older"]
	s := &simulated{test.look()}
	s.apply(t, s.install(t, want), -1)
	// It takes the flag into instance-config.yaml, and writes both (UpgradeKubelet).
	s.Files[kubeadmEnv] = "KUBELET_KUBEADM_ARGS=\"--pod-infra-container-image=registry.k8s.io/pause:3.10\"\n"
	s.Files[instanceConfig] = "containerRuntimeEndpoint: \"" + ours + "\"\n"
	s.Files[configFile] = header + "containerRuntimeEndpoint: " + ours + "\n"
	s.Kubelet.Config = append(s.Kubelet.Config, instanceConfig)
	s.Kubelet.Args.RuntimeEndpoint = ""
	if p := s.install(t, want); !p.Empty() {
		t.Errorf("there is something to do: %+v", p.Stages)
	}
	// A later version, by when somebody has lost the environment file.
	delete(s.Files, EnvFile)
	next := want
	next.Program = "hash-2"
	p := s.install(t, next)
	if p.RuntimeEndpoint != containerd {
		t.Errorf("the runtime is %s", p.RuntimeEndpoint)
	}
	s.apply(t, p, -1)
	p, err := Uninstall(s.Host, "")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, p, -1)
	if s.Files[instanceConfig] != "containerRuntimeEndpoint: \""+containerd+"\"\n" {
		t.Errorf("kubeadm would say %q", s.Files[instanceConfig])
	}
	if got, err := s.places(); err != nil || s.endpoint(got) != containerd {
		t.Errorf("the kubelet uses %s, %v", s.endpoint(got), err)
	}
}

func TestNewVersionAndMode(t *testing.T) {
	test := scenarios["kubeadm 1.34 and newer"]
	s := &simulated{test.look()}
	s.apply(t, s.install(t, want), -1)
	s.Files[EnvFile] = strings.ReplaceAll(s.Files[EnvFile], "CDI_DIR", "MY_OWN=1\nCDI_DIR") + "KUBECRI_ARGS=--v=4\n"
	next := want
	next.Program = "hash-2"
	p := s.install(t, next)
	if len(p.Stages) != 2 || p.Stages[0].Unit != UnitName || p.Stages[1].Changes[0].Path != RecordFile {
		t.Fatalf("a new program is no reason to restart the kubelet: %+v", p.Stages)
	}
	if undo := p.Stages[0].UndoCommands; cmp.Diff([][]string{{"daemon-reload"}, {"restart", UnitName}}, undo) != "" {
		t.Errorf("undone by %q", undo)
	}
	s.apply(t, p, -1)
	if env := s.Files[EnvFile]; !strings.Contains(env, "MY_OWN=1\n") || !strings.Contains(env, "KUBECRI_ARGS=--v=4\n") {
		t.Errorf("what somebody added is lost:\n%s", env)
	}

	next.Mode = "nri"
	p = s.install(t, next)
	if p.Endpoint != containerd {
		t.Errorf("in mode nri the kubelet uses %s", p.Endpoint)
	}
	s.apply(t, p, -1)
	if !strings.Contains(s.Files[EnvFile], "KUBECRI_ARGS=--mode=nri --v=4\n") || s.Files[configFile] != test.files[configFile] {
		t.Errorf("mode nri:\n%s\n%s", s.Files[EnvFile], s.Files[configFile])
	}
	next.Mode = Proxy
	s.apply(t, s.install(t, next), -1)
	if !strings.Contains(s.Files[EnvFile], "KUBECRI_ARGS=--v=4\n") || s.Files[configFile] != test.changed[configFile] {
		t.Errorf("mode proxy again:\n%s\n%s", s.Files[EnvFile], s.Files[configFile])
	}
	s.uninstall(t, test.files)
}

// In other modes than proxy the kubelet stays as it is, so that nobody minds who says where its runtime is.
func TestNRIBesideAHiddenFlag(t *testing.T) {
	s := &simulated{scenarios["JSON"].look()}
	s.Kubelet.Args.RuntimeEndpoint = containerd
	before := maps.Clone(s.Files)
	w := want
	w.Mode = NRI
	p := s.install(t, w)
	if p.RuntimeEndpoint != containerd || p.Endpoint != containerd {
		t.Errorf("the runtime is %s, and the kubelet gets %s", p.RuntimeEndpoint, p.Endpoint)
	}
	s.apply(t, p, -1)
	s.uninstall(t, before)
}

// An install by hand, as the docs had it, is taken over, and taken away.
func TestInstalledByHand(t *testing.T) {
	env := "LISTEN=" + ours + "\nRUNTIME_ENDPOINT=" + crio + "\n"
	by := host{line: []string{adminUnit}, config: []string{configFile}, files: map[string]string{
		adminUnit: "[Service]\n", configFile: header + "containerRuntimeEndpoint: " + ours + "\n", UnitFile: "[Unit]\n", EnvFile: env, Program: "hash-0", SocketFile: "[Socket]\n"}}
	s := &simulated{by.look()}
	if p := s.install(t, want); p.RuntimeEndpoint != crio {
		t.Errorf("the runtime is %s", p.RuntimeEndpoint)
	}
	p, err := Uninstall(s.Host, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"disable", "--now", "kubecri.socket"}, {"disable", "--now", UnitName}}, p.Stages[len(p.Stages)-1].Before); diff != "" {
		t.Errorf("stopped by (-want +got):\n%s", diff)
	}
	s.uninstall(t, map[string]string{adminUnit: "[Service]\n", Program: "hash-0", configFile: header + "containerRuntimeEndpoint: " + crio + "\n"})
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		scenario string
		change   func(*Host, *Want)
		says     string
	}{
		"k3s":               {"JSON", func(h *Host, _ *Want) { h.Distribution = "k3s" }, "k3s runs the kubelet inside itself"},
		"no systemd":        {"JSON", func(h *Host, _ *Want) { h.Systemd = false }, "systemd does not run this host"},
		"no unit":           {"JSON", func(h *Host, _ *Want) { h.Kubelet.Found = false }, "--kubelet-unit"},
		"a wrapper":         {"JSON", func(h *Host, _ *Want) { h.Kubelet.Program = "/bin/bash" }, "is /bin/bash, not a kubelet"},
		"does not run":      {"JSON", func(h *Host, _ *Want) { h.Kubelet.Running = false }, "start it first"},
		"the chart's":       {"JSON", func(h *Host, _ *Want) { h.Other = "kubecri runs in pod a/b" }, "pod a/b: one of the two"},
		"a package's unit":  {"a drop-in of the unit", func(h *Host, _ *Want) { h.Files[vendorUnit], h.Files[dropIn] = h.Files[dropIn], "" }, "systemctl edit kubelet.service"},
		"a hidden flag":     {"JSON", func(h *Host, _ *Want) { h.Kubelet.Args.RuntimeEndpoint = containerd }, "none of these files says so: " + adminUnit},
		"no configuration":  {"JSON", func(h *Host, _ *Want) { h.Kubelet.Config = nil }, "has no --config file"},
		"flow style":        {"JSON", func(h *Host, _ *Want) { h.Files[configFile] = "{kind: KubeletConfiguration}" }, "set it to \"" + ours + "\" by hand"},
		"no YAML":           {"JSON", func(h *Host, _ *Want) { h.Files[configFile] = "a: b: c" }, configFile + ": it is no YAML"},
		"the runtime's own": {"JSON", func(_ *Host, w *Want) { w.Listen, w.RuntimeEndpoint = "unix:///run/crio/crio.sock", crio }, "choose another --listen"},
		"TCP":               {"JSON", func(_ *Host, w *Want) { w.RuntimeEndpoint = "tcp://127.0.0.1:1" }, "is no unix socket"},
		"quotes":            {"JSON", func(_ *Host, w *Want) { args := `--v="2"`; w.Args = &args }, "quotes"},
		"unknown runtime": {"JSON", func(h *Host, _ *Want) { h.Files[configFile] = header + "containerRuntimeEndpoint: " + ours + "\n" },
			"name it with --runtime-endpoint"},
		"no program": {"JSON", func(_ *Host, w *Want) { w.Program = "" }, "there is no " + Program},
	} {
		t.Run(name, func(t *testing.T) {
			h, w := scenarios[test.scenario].look(), want
			test.change(&h, &w)
			p, err := Install(h, w)
			if err == nil || !strings.Contains(err.Error(), test.says) || len(p.Stages) > 0 {
				t.Errorf("got %v and %d stages, want a refusal that says %q", err, len(p.Stages), test.says)
			}
		})
	}
	// kubecri is not taken from a kubelet that uses it because of something else than its files.
	by := scenarios["JSON"].look()
	by.Kubelet.Args.RuntimeEndpoint = ours
	by.Files[EnvFile] = "LISTEN=" + ours + "\nRUNTIME_ENDPOINT=" + crio + "\n"
	if p, err := Uninstall(by, ""); err == nil || !strings.Contains(err.Error(), "would still use "+ours) {
		t.Errorf("uninstall under a kubelet that stays: %v, %+v", err, p.Stages)
	}
	if _, err := Uninstall(scenarios["JSON"].look(), ""); err == nil || !strings.Contains(err.Error(), "not installed here") {
		t.Errorf("uninstall without install: %v", err)
	}
}

// An interrupted install whose kubelet does not run is completed, and undone.
func TestKubeletThatDoesNotRun(t *testing.T) {
	test := scenarios["kubeadm 1.34 and newer"]
	s := &simulated{test.look()}
	p := s.install(t, want)
	s.apply(t, p, len(p.Stages[0].Changes)+1)
	s.Kubelet.Running, s.Active = false, false
	if p := s.install(t, want); p.RuntimeEndpoint != containerd {
		t.Errorf("the runtime is %s", p.RuntimeEndpoint)
	}
	s.uninstall(t, test.files)
}
