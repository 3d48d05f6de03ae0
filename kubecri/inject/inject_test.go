package inject

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/slot"
)

func grant(t testing.TB, name, holder string, d discovery.Device) Grant {
	t.Helper()
	s, err := slot.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return Grant{Slot: s, Holder: holder, Device: d}
}

func properties(kv ...string) discovery.Device {
	d := discovery.Device{Properties: map[string]string{}, Variables: map[string]bool{}, BrokerVariables: map[string]bool{}}
	for i := 0; i < len(kv); i += 2 {
		d.Properties[kv[i]] = kv[i+1]
		d.BrokerVariables[kv[i]] = strings.HasPrefix(kv[i], "BROKER_")
		d.Variables[kv[i]] = !strings.HasPrefix(kv[i], "NOT_") && !d.BrokerVariables[kv[i]]
	}
	return d
}

func ofBroker(g Grant) Grant {
	g.Broker = true
	return g
}

func TestEnvironment(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Container
		grants []Grant
		want   []string
	}{{
		name:   "one device",
		grants: []Grant{grant(t, "cam-8120fe-0", "u", properties("URL", "a", "ID", "1"))},
		want: []string{"ID=1", "ID_8120FE=1", "URL=a", "URL_8120FE=a",
			`AKRI_DEVICES=[{"instance":"cam-8120fe","slot":"cam-8120fe-0","properties":{"ID":"1","URL":"a"}}]`},
	}, {
		name:   "two devices: the plain name is the first one's",
		grants: []Grant{grant(t, "cam-b0-1", "u", properties("URL", "b")), grant(t, "cam-a0-0", "u", properties("URL", "a", "X", "x"))},
		want: []string{"URL=b", "URL_B0=b", "URL_A0=a", "X=x", "X_A0=x",
			`AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-1","properties":{"URL":"b"}},{"instance":"cam-a0","slot":"cam-a0-0","properties":{"URL":"a","X":"x"}}]`},
	}, {
		name:   "two slots of one device",
		grants: []Grant{grant(t, "cam-b0-0", "u", properties("URL", "b")), grant(t, "cam-b0-1", "u", properties("URL", "b"))},
		want: []string{"URL=b", "URL_B0=b",
			`AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"URL":"b"}},{"instance":"cam-b0","slot":"cam-b0-1","properties":{"URL":"b"}}]`},
	}, {
		name:   "the pod's own variable wins over a plain name",
		config: Container{Env: []string{"URL"}},
		grants: []Grant{grant(t, "cam-b0-0", "", properties("URL", "b"))},
		want:   []string{"URL_B0=b", `AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"URL":"b"}}]`},
	}, {
		name:   "the pod's own variable wins over an exact name, too",
		config: Container{Env: []string{"URL_B0"}},
		grants: []Grant{grant(t, "cam-b0-0", "", properties("URL", "b"))},
		want:   []string{"URL=b", `AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"URL":"b"}}]`},
	}, {
		name:   "what may not be a variable is one with the hash alone",
		grants: []Grant{grant(t, "cam-b0-0", "", properties("NOT_PATH", "/p", "LDAP", "ok"))},
		want: []string{"LDAP=ok", "LDAP_B0=ok", "NOT_PATH_B0=/p",
			`AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"LDAP":"ok","NOT_PATH":"/p"}}]`},
	}, {
		name:   "what brokers alone have by its name, in another's container",
		grants: []Grant{grant(t, "cam-b0-0", "", properties("BROKER_SITE", "yard"))},
		want: []string{"BROKER_SITE_B0=yard",
			`AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"BROKER_SITE":"yard"}}]`},
	}, {
		name:   "in a broker's, which may use another Configuration's device, too",
		grants: []Grant{grant(t, "mic-a0-0", "", properties("BROKER_ZONE", "1")), ofBroker(grant(t, "cam-b0-0", "", properties("BROKER_SITE", "yard", "NOT_PATH", "/p")))},
		want: []string{"BROKER_ZONE_A0=1", "BROKER_SITE=yard", "BROKER_SITE_B0=yard", "NOT_PATH_B0=/p",
			`AKRI_DEVICES=[{"instance":"mic-a0","slot":"mic-a0-0","properties":{"BROKER_ZONE":"1"}},{"instance":"cam-b0","slot":"cam-b0-0","properties":{"BROKER_SITE":"yard","NOT_PATH":"/p"}}]`},
	}, {
		name:   "of two devices the first that may give the name gives it",
		grants: []Grant{grant(t, "cam-b0-0", "", discovery.Device{Properties: map[string]string{"URL": "b"}}), grant(t, "cam-a0-0", "", properties("URL", "a"))},
		want: []string{"URL_B0=b", "URL=a", "URL_A0=a",
			`AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"URL":"b"}},{"instance":"cam-a0","slot":"cam-a0-0","properties":{"URL":"a"}}]`},
	}, {
		name:   "names that no variable can have stay in the list",
		grants: []Grant{grant(t, "cam-b0-0", "", properties("", "e", "A=B", "q", "N", "a\x00b", "\xff", "u"))},
		want:   []string{`AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"":"e","A=B":"q","N":"a\u0000b","\ufffd":"u"}}]`},
	}, {
		name:   "a plain name never shadows another device's exact name, nor the list",
		grants: []Grant{grant(t, "cam-a0-0", "", properties("URL_B0", "evil", "AKRI_DEVICES", "evil")), grant(t, "cam-b0-0", "", properties("URL", "b"))},
		want: []string{"AKRI_DEVICES_A0=evil", "URL_B0_A0=evil", "URL=b", "URL_B0=b",
			`AKRI_DEVICES=[{"instance":"cam-a0","slot":"cam-a0-0","properties":{"AKRI_DEVICES":"evil","URL_B0":"evil"}},{"instance":"cam-b0","slot":"cam-b0-0","properties":{"URL":"b"}}]`},
	}, {
		name: "no properties", grants: []Grant{grant(t, "cam-a0-0", "", discovery.Device{})},
		want: []string{`AKRI_DEVICES=[{"instance":"cam-a0","slot":"cam-a0-0","properties":{}}]`},
	}} {
		t.Run(test.name, func(t *testing.T) {
			add, err := merge(test.config, "", test.grants)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, env := range add.Env {
				got = append(got, env.Name+"="+env.Value)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// execve fails for the whole container when one string is longer than Linux allows.
func TestAListThatNoProcessCanHaveIsRefused(t *testing.T) {
	most := func(extra int) []Grant {
		overhead := len(`AKRI_DEVICES=[{"instance":"cam-b0","slot":"cam-b0-0","properties":{"K":""}}]`) + 1
		return []Grant{grant(t, "cam-b0-0", "", properties("K", strings.Repeat("x", 128<<10-overhead+extra)))}
	}
	if _, err := merge(Container{}, "", most(0)); err != nil {
		t.Error(err)
	}
	_, err := merge(Container{}, "", most(1))
	for _, part := range []string{"AKRI_DEVICES", "131073", "131072", "fewer slots"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Merge() = %v, want an error that says %q", err, part)
		}
	}
}

func TestAnnotations(t *testing.T) {
	add, err := merge(Container{}, "", []Grant{grant(t, "cam-a0-0", "uid", discovery.Device{}), grant(t, "cam-b0-3", "", discovery.Device{})})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"akri.agent.slot-cam-a0-0": "C:uid:cam-a0-0", "akri.agent.slot-cam-b0-3": "cam-b0-3"}
	if diff := cmp.Diff(want, add.Annotations); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPaths(t *testing.T) {
	device := func(containerPath, hostPath, permissions string) discovery.Device {
		return discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: containerPath, HostPath: hostPath, Permissions: permissions}}}
	}
	mount := func(containerPath, hostPath string, readOnly bool) discovery.Device {
		return discovery.Device{Mounts: []discovery.Mount{{ContainerPath: containerPath, HostPath: hostPath, ReadOnly: readOnly}}}
	}
	own := UserNamespace{UIDs: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}}
	for _, test := range []struct {
		name   string
		config Container
		grants []Grant
		want   Additions
		errors []string // parts of the error
	}{{
		name:   "permissions default to all",
		grants: []Grant{grant(t, "a-1-0", "", device("/dev/x", "/dev/x", "")), grant(t, "a-2-0", "", device("/dev/y", "/dev/z", "r"))},
		want: Additions{Devices: []discovery.DeviceSpec{
			{ContainerPath: "/dev/x", HostPath: "/dev/x", Permissions: "rwm"}, {ContainerPath: "/dev/y", HostPath: "/dev/z", Permissions: "r"}}},
	}, {
		name:   "two slots of one device give its paths once",
		grants: []Grant{grant(t, "a-1-0", "", mount("/m", "/h", true)), grant(t, "a-1-1", "", mount("/m", "/h", true))},
		want:   Additions{Mounts: []discovery.Mount{{ContainerPath: "/m", HostPath: "/h", ReadOnly: true}}},
	}, {
		name:   "two devices may share a control node",
		grants: []Grant{grant(t, "a-1-0", "", device("/dev/ctl", "/dev/ctl", "rw")), grant(t, "a-2-0", "", device("/dev/ctl", "/dev/ctl", "rw"))},
		want:   Additions{Devices: []discovery.DeviceSpec{{ContainerPath: "/dev/ctl", HostPath: "/dev/ctl", Permissions: "rw"}}},
	}, {
		name:   "two devices at one path",
		grants: []Grant{grant(t, "a-1-0", "", device("/dev/video0", "/dev/video0", "")), grant(t, "a-2-0", "", device("/dev/../dev/video0", "/dev/video1", ""))},
		errors: []string{"slot a-1-0", "slot a-2-0", "/dev/video0"},
	}, {
		name:   "a device where the pod mounts a volume",
		config: Container{Mounts: []string{"/m/"}},
		grants: []Grant{grant(t, "a-1-0", "", mount("/m", "/h", true))},
		errors: []string{"volume of the pod", "slot a-1-0", "/m"},
	}, {
		name:   "a device where the pod has another",
		config: Container{Devices: []discovery.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/y", Permissions: "rwm"}}},
		grants: []Grant{grant(t, "a-1-0", "", device("/dev/x", "/dev/x", ""))},
		errors: []string{"device of the pod", "slot a-1-0", "/dev/x"},
	}, {
		name:   "users of its own, and a device node at its own path",
		config: Container{Users: own},
		grants: []Grant{grant(t, "a-1-0", "", device("/dev/x", "/dev/x", "r"))},
		want:   Additions{Devices: []discovery.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/x", Permissions: "r"}}},
	}, {
		name:   "users of its own, and a device node at another path",
		config: Container{Users: own},
		grants: []Grant{{Slot: slot.Name{Instance: "a-1", Index: 0}, Device: device("/dev/x", "/dev/y", "r"), CDI: "akri.sh/a=1"}},
		errors: []string{"slot a-1-0", "/dev/y at /dev/x", "hostUsers"},
	}, {
		name: "the container's root", grants: []Grant{grant(t, "a-1-0", "", mount("/", "/h", true))}, errors: []string{"slot a-1-0", `"/h"`, "is the container's root"},
	}, {
		name:   "over the token of the pod, by CDI",
		grants: []Grant{{Slot: slot.Name{Instance: "a-1", Index: 0}, Device: mount("/var/run/secrets", "/h", true), CDI: "akri.sh/a=1"}},
		errors: []string{"slot a-1-0", "the directory of the container's ServiceAccount"},
	}, {
		name: "a device node in /proc", grants: []Grant{grant(t, "a-1-0", "", device("/proc/x", "/dev/x", ""))}, errors: []string{"slot a-1-0", "is the kernel's"},
	}, {
		name: "relative path", grants: []Grant{grant(t, "a-1-0", "", device("dev/x", "/dev/x", ""))}, errors: []string{"a-1-0", `"dev/x"`},
	}, {
		name: "no host path", grants: []Grant{grant(t, "a-1-0", "", mount("/m", "", false))}, errors: []string{"a-1-0", `""`},
	}, {
		name: "permissions", grants: []Grant{grant(t, "a-1-0", "", device("/dev/x", "/dev/x", "rx"))}, errors: []string{"a-1-0", `"rx"`},
	}} {
		t.Run(test.name, func(t *testing.T) {
			got, err := merge(test.config, "", test.grants)
			if test.errors != nil {
				if err == nil {
					t.Fatal("no error")
				}
				for _, part := range test.errors {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q does not say %q", err, part)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got = Additions{Mounts: got.Mounts, Devices: got.Devices}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoGrantsAddNothing(t *testing.T) {
	add, err := merge(Container{}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if extra, err := add.CRI(); extra != nil || err != nil {
		t.Errorf("CRI() = %v, %v", extra, err)
	}
}

// The runtime must read the request as if the additions had been merged into it,
// and the kubelet's bytes, fields of a later CRI among them, must stay as they are.
func FuzzCRIMergesIntoTheRequest(f *testing.F) {
	f.Add("box", "KEY", "value", "/m", "/h", "cam-8120fe-0", uint64(1000), "later")
	f.Add("", "", "\x00", "m", "", "-0", uint64(1), "")
	f.Add("b", "A=B", "v", "/", "/", "a-0", uint64(19000), "x")
	f.Fuzz(func(t *testing.T, box, key, value, containerPath, hostPath, slotName string, field uint64, unknown string) {
		s, err := slot.Parse(slotName)
		if err != nil {
			return
		}
		request := &runtimeapi.CreateContainerRequest{
			PodSandboxId: strings.ToValidUTF8(box, "?"),
			Config: &runtimeapi.ContainerConfig{
				Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
				Envs:        []*runtimeapi.KeyValue{{Key: "OWN", Value: []byte(value)}},
				Annotations: map[string]string{"io.kubernetes.container.hash": "1"},
			},
			SandboxConfig: &runtimeapi.PodSandboxConfig{Hostname: "h"},
		}
		number := protowire.Number(100 + field%10_000)
		later := protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), unknown)
		request.ProtoReflect().SetUnknown(later)
		request.Config.ProtoReflect().SetUnknown(later)
		raw, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		grants := []Grant{{Slot: s, Holder: "uid", Device: discovery.Device{
			Properties: map[string]string{key: value},
			Mounts:     []discovery.Mount{{ContainerPath: containerPath, HostPath: hostPath}},
		}}}
		add, err := merge(FromCRI(request), "", grants)
		if err != nil {
			return // refused, not sent
		}
		extra, err := add.CRI()
		if err != nil {
			return
		}
		want := proto.Clone(request).(*runtimeapi.CreateContainerRequest)
		proto.Merge(want, &runtimeapi.CreateContainerRequest{Config: add.config()})
		got := &runtimeapi.CreateContainerRequest{}
		if err := proto.Unmarshal(append(raw[:len(raw):len(raw)], extra...), got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(want, got) {
			t.Errorf("merge differs:\n%s", cmp.Diff(want, got, protocmp.Transform()))
		}
		for _, m := range []proto.Message{got, got.Config} {
			if string(m.ProtoReflect().GetUnknown()) != string(later) {
				t.Errorf("unknown fields of %T are lost", m)
			}
		}
		if again, _ := add.CRI(); string(again) != string(extra) {
			t.Error("not deterministic")
		}
		last := add.Env[len(add.Env)-1]
		if last.Name != DevicesEnv || !json.Valid([]byte(last.Value)) {
			t.Errorf("%s = %q", last.Name, last.Value)
		}
		for key := range add.Annotations {
			if !strings.HasPrefix(key, "akri.agent.slot-") {
				t.Errorf("annotation %q", key)
			}
		}
	})
}

// A device with a CDI name is the runtime's to give: its name is in the request
// once, its paths are not, and still collide with others'.
func TestDeviceByCDIName(t *testing.T) {
	cam := properties("URL", "a")
	cam.Mounts = []discovery.Mount{{HostPath: "/h", ContainerPath: "/c"}}
	cam.DeviceSpecs = []discovery.DeviceSpec{{HostPath: "/dev/h", ContainerPath: "/dev/c"}}
	byName := func(slot string) Grant {
		g := grant(t, slot, "u", cam)
		g.CDI = "akri.sh/cam=a0"
		return g
	}
	other := discovery.Device{Mounts: []discovery.Mount{{HostPath: "/x", ContainerPath: "/y"}}}
	add, err := merge(Container{}, "", []Grant{byName("cam-a0-0"), byName("cam-a0-1"), grant(t, "cam-b0-0", "u", other)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"akri.sh/cam=a0"}, add.CDI); diff != "" {
		t.Errorf("CDI devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(other.Mounts, add.Mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if len(add.Devices) != 0 || len(add.Env) == 0 {
		t.Errorf("device nodes %v and %d variables", add.Devices, len(add.Env))
	}
	other.Mounts[0].ContainerPath = "/c"
	if _, err := merge(Container{}, "", []Grant{byName("cam-a0-0"), grant(t, "cam-b0-0", "u", other)}); err == nil {
		t.Error("two devices want one path, and that is no error")
	}
}

func TestWhatMattersOfACRIContainer(t *testing.T) {
	got := FromCRI(&runtimeapi.CreateContainerRequest{Config: &runtimeapi.ContainerConfig{
		Envs:    []*runtimeapi.KeyValue{{Key: "A", Value: []byte("a")}},
		Mounts:  []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: "/h"}},
		Devices: []*runtimeapi.Device{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "r"}},
		Linux:   &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{Privileged: true}},
	}, SandboxConfig: &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD,
			Uids: []*runtimeapi.IDMapping{{HostId: 65536, ContainerId: 0, Length: 100}}, Gids: []*runtimeapi.IDMapping{{HostId: 131072, ContainerId: 1, Length: 9}}}}}}}})
	want := Container{Env: []string{"A"}, Mounts: []string{"/m"}, Privileged: true,
		Users: UserNamespace{UIDs: []*runtimeapi.IDMapping{{HostId: 65536, Length: 100}},
			GIDs: []*runtimeapi.IDMapping{{HostId: 131072, ContainerId: 1, Length: 9}}},
		Devices: []discovery.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "r"}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
