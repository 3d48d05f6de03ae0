package reports

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func configuration(name string) *v0.Configuration {
	return &v0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "cameras", Name: name, UID: types.UID("uid-" + name)},
		Spec: v0.ConfigurationSpec{DiscoveryHandler: v0.DiscoveryHandlerInfo{Name: "echoes"}}}
}

func TestExamine(t *testing.T) {
	const first, second = "camera-11047", "camera-9752" // both have the hash 6a1ec6
	device := func(id string) discovery.Device { return discovery.Device{ID: id} }
	with := func(id string, properties int, key, value string) discovery.Device {
		d := discovery.Device{ID: id, Properties: map[string]string{key: value}}
		for n := range properties - 1 {
			d.Properties[fmt.Sprint("P", n)] = ""
		}
		return d
	}
	for name, tc := range map[string]struct {
		devices  []discovery.Device
		change   func(*v0.Configuration)
		local    bool
		named    string   // the id of the device of first's hash so far
		want     []string // ids
		rejected []string // parts of the reasons
	}{
		"nothing":         {},
		"all right":       {devices: []discovery.Device{device("b"), device("a")}, want: []string{"a", "b"}},
		"no id":           {devices: []discovery.Device{device(""), device("a")}, want: []string{"a"}, rejected: []string{"has no id"}},
		"NUL":             {devices: []discovery.Device{device("a\x00")}, rejected: []string{"NUL in the id"}},
		"no UTF-8":        {devices: []discovery.Device{device("\xff")}, rejected: []string{"the id is not text"}},
		"a long id":       {devices: []discovery.Device{device(strings.Repeat("ä", 1024)), device(strings.Repeat("z", 1025))}, want: []string{strings.Repeat("ä", 1024)}, rejected: []string{"more than 1024 characters"}},
		"twice":           {devices: []discovery.Device{device("a"), device("a"), device("a")}, want: []string{"a"}, rejected: []string{"more than once", "more than once"}},
		"many properties": {devices: []discovery.Device{with("a", 256, "x", ""), with("b", 257, "x", "")}, want: []string{"a"}, rejected: []string{"257 properties, of 256"}},
		"large":           {devices: []discovery.Device{with("a", 1, "x", strings.Repeat("x", 60<<10)), with("b", 1, "x", strings.Repeat("x", 64<<10))}, want: []string{"a"}, rejected: []string{"of 65536 that are allowed"}},
		"one hash for two": {
			devices: []discovery.Device{device(second), device(first)}, want: []string{first},
			rejected: []string{"spec.instanceNameDigits: 12 tells them apart"},
		},
		"one hash for two, of which one has it": {
			devices: []discovery.Device{device(second), device(first)}, named: second, want: []string{second},
			rejected: []string{"which comes first"},
		},
		"twelve digits": {
			devices: []discovery.Device{device(second), device(first)}, want: []string{first, second},
			change: func(c *v0.Configuration) { c.Spec.InstanceNameDigits = 12 },
		},
		"for other nodes": {
			devices: []discovery.Device{device("a"), {ID: "b", Mounts: make([]discovery.Mount, 1)}, {ID: "c", DeviceSpecs: make([]discovery.DeviceSpec, 1)}}, want: []string{"a"},
			change:   func(c *v0.Configuration) { c.Spec.Discovery = &v0.Discovery{} },
			rejected: []string{"with spec.discovery other nodes use it", "with spec.discovery other nodes use it"},
		},
		"for other nodes, local": {
			devices: []discovery.Device{device("a")}, local: true,
			change:   func(c *v0.Configuration) { c.Spec.Discovery = &v0.Discovery{} },
			rejected: []string{"with spec.discovery other nodes use it"},
		},
		"properties that are no environment": {
			devices:  []discovery.Device{with("a", 1, "A=B", ""), with("b", 1, "", ""), with("c", 1, "A", "\x00"), with("d", 1, "A", "\xff"), with("e", 1, "A", "=\n")},
			want:     []string{"e"},
			rejected: []string{"name of an environment variable", "name of an environment variable", "not text", "not text"},
		},
		"paths": {
			devices: []discovery.Device{
				{ID: "a", Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: "/y"}}, DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: "/y", Permissions: "rw"}}},
				{ID: "b", Mounts: []discovery.Mount{{ContainerPath: "x", HostPath: "/y"}}},
				{ID: "c", Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: ""}}},
				{ID: "d", DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: "/y\x00"}}},
				{ID: "e", DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: "/y", Permissions: "rwx"}}},
				{ID: "f", Mounts: make([]discovery.Mount, 200), DeviceSpecs: make([]discovery.DeviceSpec, 57)},
				{ID: "g", Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: "/etc"}}},
				{ID: "h", Mounts: []discovery.Mount{{ContainerPath: "/run/secrets/kubernetes.io/serviceaccount", HostPath: "/y"}}},
				{ID: "i", DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/proc/x", HostPath: "/y", Permissions: "rw"}}},
			},
			want: []string{"a"},
			rejected: []string{`containerPath "x"`, `hostPath ""`, `hostPath "/y\x00"`, `permissions "rwx"`, "257 mounts and device nodes", "is not allowed",
				"the directory of the container's ServiceAccount", `containerPath "/proc/x": is the kernel's`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration("cam")
			if tc.change != nil {
				tc.change(c)
			}
			e := Examination{Configuration: c, Node: "a", Named: func(string) string { return tc.named }, Allowed: func(d discovery.Device) error {
				if len(d.Mounts) > 0 && d.Mounts[0].HostPath == "/etc" {
					return errors.New("is not allowed")
				}
				return nil
			}}
			devices, rejected := e.Examine(discovery.Result{Devices: tc.devices, Shared: !tc.local})
			var ids []string
			for hash, d := range devices {
				ids = append(ids, d.ID)
				report := d.InSlice(Reference(c))
				if err := report.Check("a"); err != nil || hash != d.Hash || len(hash) != c.Spec.HashDigits() {
					t.Errorf("device %q has hash %s: %v", d.ID, hash, err)
				}
			}
			slices.Sort(ids)
			if !slices.Equal(ids, tc.want) {
				t.Errorf("devices %q, want %q", ids, tc.want)
			}
			if len(rejected) != len(tc.rejected) {
				t.Fatalf("rejected %v, want %q", rejected, tc.rejected)
			}
			for i, part := range tc.rejected {
				if !strings.Contains(rejected[i].Error(), part) {
					t.Errorf("rejected %v, want %q", rejected[i], part)
				}
			}
		})
	}
	c := configuration("cam")
	c.Spec.InstanceNameDigits = 12
	devices := make([]discovery.Device, maxDevices+10)
	for i := range devices {
		devices[i].ID = fmt.Sprint(i)
	}
	e := Examination{Configuration: c, Node: "a", Named: func(string) string { return "" }, Allowed: func(discovery.Device) error { return nil }}
	taken, rejected := e.Examine(discovery.Result{Devices: devices})
	if len(taken) != maxDevices || Summary(rejected) != "1 devices: 20010 devices are reported, of which the first 20000 are taken" {
		t.Errorf("%d devices are taken, rejected: %s", len(taken), Summary(rejected))
	}
}

// A flood of devices that cannot be served is counted, and not kept.
func TestExamineKeepsFewRejections(t *testing.T) {
	e := Examination{Configuration: configuration("cam"), Node: "a", Named: func(string) string { return "" }}
	_, rejected := e.Examine(discovery.Result{Devices: make([]discovery.Device, 50_000)})
	if n := len(rejected); n != maxRejections+1 || rejected[n-1].Error() != "49000 more are left out" {
		t.Errorf("keeps %d rejections, the last is %q", n, rejected[n-1])
	}
	if text := Summary(rejected); !strings.HasPrefix(text, "50000 devices: ") || !strings.HasSuffix(text, "; and 49995 more") {
		t.Errorf("summary %q", text)
	}
}
