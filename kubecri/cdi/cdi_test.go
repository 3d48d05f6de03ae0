package cdi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/slot"
)

var camera = discovery.Device{
	Properties:  map[string]string{"URL": "rtsp://a", "ID": "7"},
	Mounts:      []discovery.Mount{{HostPath: "/etc/hosts", ContainerPath: "/a", ReadOnly: true}, {HostPath: "/tmp", ContainerPath: "/b"}},
	DeviceSpecs: []discovery.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/cam", Permissions: "rw"}},
}

func TestDescribe(t *testing.T) {
	data, err := describe("front-door.cam-8120fe", camera)
	if err != nil {
		t.Fatal(err)
	}
	var got specs.Spec
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := specs.Spec{Version: "0.6.0", Kind: "akri.sh/front-door.cam", Devices: []specs.Device{{Name: "8120fe", ContainerEdits: specs.ContainerEdits{
		Mounts: []*specs.Mount{
			{HostPath: "/etc/hosts", ContainerPath: "/a", Type: "bind", Options: []string{"rbind", "rprivate", "ro"}},
			{HostPath: "/tmp", ContainerPath: "/b", Type: "bind", Options: []string{"rbind", "rprivate", "rw"}}},
		DeviceNodes: []*specs.DeviceNode{{Path: "/dev/cam", HostPath: "/dev/null", Permissions: "rw"}},
	}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Name("front-door.cam-8120fe"); got != "akri.sh/front-door.cam=8120fe" {
		t.Errorf("its name is %s", got)
	}
}

// Whatever a device is, it has no spec or one that a runtime reads as it was meant, and in
// which it finds the name that containers request.
func FuzzDescribe(f *testing.F) {
	f.Add("front-door.cam-8120fe", "/etc/hosts", "/a", "rw", true)
	f.Add("c-a1", "/h", "/c", "r", false)
	f.Add("cam-", "", "", "", false)
	f.Add("-a1", "/h", "/c\xff", "m", false)
	f.Add("3d-printer-a1", "/h", "/c", "rwm", false)
	f.Fuzz(func(t *testing.T, instance, hostPath, containerPath, permissions string, readOnly bool) {
		device := discovery.Device{
			Mounts:      []discovery.Mount{{HostPath: hostPath, ContainerPath: containerPath, ReadOnly: readOnly}},
			DeviceSpecs: []discovery.DeviceSpec{{HostPath: "/dev/null", ContainerPath: containerPath, Permissions: permissions}},
		}
		data, err := describe(instance, device)
		if err != nil {
			return
		}
		var got specs.Spec
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		access := map[bool]string{true: "ro", false: "rw"}[readOnly]
		want := specs.ContainerEdits{
			Mounts:      []*specs.Mount{{HostPath: hostPath, ContainerPath: containerPath, Type: "bind", Options: []string{"rbind", "rprivate", access}}},
			DeviceNodes: []*specs.DeviceNode{{Path: containerPath, HostPath: "/dev/null", Permissions: permissions}},
		}
		if len(got.Devices) != 1 || !cmp.Equal(got.ContainerEdits, specs.ContainerEdits{}) {
			t.Fatalf("described as %s", data)
		}
		if diff := cmp.Diff(want, got.Devices[0].ContainerEdits); diff != "" {
			t.Errorf("the runtime reads (-want +got):\n%s", diff)
		}
		configuration, hash := slot.SplitInstance(instance)
		if len(validation.IsDNS1123Subdomain(configuration)) > 0 || len(validation.IsDNS1123Label(hash)) > 0 {
			return // no Instance is called so
		}
		vendor, class, name, err := parser.ParseQualifiedName(Name(instance))
		if err != nil || vendor+"/"+class != got.Kind || name != got.Devices[0].Name {
			t.Errorf("%s is device %q of %q, and containers request %q: %v", instance, got.Devices[0].Name, got.Kind, Name(instance), err)
		}
	})
}

func TestWhatCDICannotDescribe(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	node := func(path string) discovery.Device {
		return discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{HostPath: path, ContainerPath: "/dev/x"}}}
	}
	for name, test := range map[string]struct {
		instance string
		device   discovery.Device
	}{
		"a kind that begins with a digit": {"3d-printer-a1", camera},
		"a kind of one character":         {"c-a1", camera},
		"nothing to give":                 {"cam-a1", discovery.Device{}},
		"a directory as device":           {"cam-a1", node("/dev")},
		"a link to a device":              {"cam-a1", node(link)},
		"an absent device":                {"cam-a1", node("/dev/does-not-exist")},
		"no Instance's name":              {"cam", camera},
	} {
		if data, err := describe(test.instance, test.device); err == nil {
			t.Errorf("%s: described as %s", name, data)
		}
	}
}

// source is an agent whose devices a test changes.
type source struct {
	mu      sync.Mutex
	devices map[string]discovery.Device
	unknown map[string]bool
	changed chan struct{}
}

func (s *source) Devices() (map[string]discovery.Device, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.devices), s.changed
}

func (s *source) Gone(instance string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.devices[instance]
	return !ok && !s.unknown[instance]
}

func (s *source) set(instances ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices, s.unknown = map[string]discovery.Device{}, nil
	for _, instance := range instances {
		s.devices[instance] = camera
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	await.That(t, fmt.Sprintf("the directory to have %q", want), func() (bool, string) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		return slices.Equal(got, want), fmt.Sprintf("%q", got)
	})
}

// Files follow the devices; one of a former life stays until its device is known
// to be gone, and other vendors' always.
func TestSpecsFollowTheDevices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubeslot-cam-old.json", "kubeslot-cam-late.json", "vendor.com-gpu.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := NewInjector(dir, runtime{})
	s := &source{changed: make(chan struct{}), unknown: map[string]bool{"cam-late": true}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx, s) }()
	wantFiles(t, dir, "kubeslot-cam-late.json", "vendor.com-gpu.json")
	s.set("cam-a1", "cam-late")
	wantFiles(t, dir, "kubeslot-cam-a1.json", "kubeslot-cam-late.json", "vendor.com-gpu.json")
	s.set("cam-b2")
	wantFiles(t, dir, "kubeslot-cam-b2.json", "vendor.com-gpu.json")
	stop()
	<-ended
	wantFiles(t, dir, "kubeslot-cam-b2.json", "vendor.com-gpu.json")
}

// What could not be written, on a full disk say, is written when there is room,
// though no device changes. The log has the fault once.
func TestSpecsAreWrittenOnceTheyCanBe(t *testing.T) {
	base := t.TempDir()
	inTheWay := filepath.Join(base, "run")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	i := NewInjector(filepath.Join(inTheWay, "cdi"), runtime{})
	i.retry = time.Millisecond
	s := &source{changed: make(chan struct{})}
	s.set("cam-a1")
	var logs bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logs)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	ended := make(chan struct{})
	looks := &counted{source: s, times: make(chan struct{})}
	go func() { defer close(ended); i.Run(ctx, looks) }()
	for range 4 { // it could not, and tries again
		await.Next(t, "another try", looks.times)
	}
	go func() {
		for range looks.times {
		}
	}()
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, filepath.Join(inTheWay, "cdi"), "kubeslot-cam-a1.json")
	stop()
	<-ended
	close(looks.times)
	if n := strings.Count(logs.String(), "Cannot bring CDI specs up to date"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &logs)
	}
}

// counted says each time that the devices are looked at.
type counted struct {
	*source
	times chan struct{}
}

func (c *counted) Devices() (map[string]discovery.Device, <-chan struct{}) {
	c.times <- struct{}{}
	return c.source.Devices()
}

// A device whose spec has changed is not given by name before the runtime has read it, which may give another device's
// nodes until then. Of a new spec it has nothing to give.
func TestNoNameOfASpecThatHasChanged(t *testing.T) {
	dir := t.TempDir()
	i := NewInjector(dir, runtime{})
	i.usable.Store(true)
	other := camera
	other.DeviceSpecs = []discovery.DeviceSpec{{HostPath: "/dev/zero", ContainerPath: "/dev/cam", Permissions: "rw"}}
	path := i.store.path("cam-a1")
	for _, step := range []struct {
		what   string
		before func()
		device discovery.Device
		want   string
	}{
		{"new", func() {}, camera, "akri.sh/cam=a1"},
		{"changed", func() {}, other, ""},
		{"just after", func() {}, other, ""},
		{"read", func() { i.store.changed[path] = time.Now().Add(-readWithin) }, other, "akri.sh/cam=a1"},
		{"changed again", func() {}, camera, ""},
		{"read again", func() { i.store.changed[path] = time.Now().Add(-readWithin) }, camera, "akri.sh/cam=a1"},
		{"gone and back", func() { _ = i.store.prune(func(string) bool { return true }) }, other, ""},
	} {
		step.before()
		if got := i.Device(t.Context(), "cam-a1", step.device); got != step.want {
			t.Errorf("%s: given as %q, want %q", step.what, got, step.want)
		}
	}
}

func TestByNameOnlyWhereTheRuntimeResolvesIt(t *testing.T) {
	dir := t.TempDir()
	config := func(text string) map[string]string { return map[string]string{"config": text} }
	on := runtime{"containerd", "v2.3.7", config(`{"enableCDI":true,"cdiSpecDirs":["/etc/cdi","` + dir + `/"]}`), nil}
	for _, test := range []struct {
		name    string
		runtime runtime
		dir     string
		device  discovery.Device
		want    string
	}{
		{"on", on, dir, camera, "akri.sh/cam=a1"},
		{"on, and it reads other directories", on, filepath.Join(dir, "other"), camera, ""},
		{"on, and CDI cannot describe the device", on, dir, discovery.Device{}, ""},
		{"on, and the directory cannot be written", runtime{"containerd", "v2", config(`{"enableCDI":true,"cdiSpecDirs":["/dev/null/cdi"]}`), nil}, "/dev/null/cdi", camera, ""},
		{"off", runtime{"containerd", "v2", config(`{"enableCDI":false,"cdiSpecDirs":["` + dir + `"]}`), nil}, dir, camera, ""},
		{"not known yet", runtime{err: errors.New("down")}, dir, camera, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := NewInjector(test.dir, test.runtime)
			once, cancel := context.WithCancel(t.Context())
			cancel()
			_, usable, _ := i.probe(once)
			i.usable.Store(usable)
			got := i.Device(t.Context(), "cam-a1", test.device)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if _, err := os.Stat(i.store.path("cam-a1")); got != "" && err != nil {
				t.Errorf("its name is given, and there is no spec: %v", err)
			}
		})
	}
	if !reads(defaultDirs, "/run/cdi") || reads(defaultDirs, "/opt/cdi") {
		t.Error("the default directories are /etc/cdi and /run/cdi, to which /var/run is a link")
	}
}

// A create finds the spec as its device is now, whatever the file said before.
func TestSpecIsRightWhenItsNameIsGiven(t *testing.T) {
	dir := t.TempDir()
	i := NewInjector(dir, runtime{})
	i.usable.Store(true)
	want, err := describe("cam-a1", camera)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeslot-cam-a1.json")
	for _, spoil := range []func() error{
		func() error { return nil },
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		i.Device(t.Context(), "cam-a1", camera)
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%v, %s", err, got)
		}
	}
}

// A spec names devices of the node, and others than root need not read it.
func TestModesOfSpecFiles(t *testing.T) {
	s := store{dir: t.TempDir()}
	left := filepath.Join(s.dir, "."+prefix+"cam-8120fe.json.tmp")
	if err := os.WriteFile(left, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.put("cam-8120fe", camera); err != nil {
		t.Fatal(err)
	}
	narrow := func(what string) {
		info, err := os.Stat(s.path("cam-8120fe"))
		if err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v; want mode 0640", what, info, err)
		}
	}
	narrow("a new file")
	// One that says the same, of a kubecri that wrote it for all to read.
	if err := os.Chmod(s.path("cam-8120fe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.put("cam-8120fe", camera); err != nil {
		t.Fatal(err)
	}
	narrow("an old file")
}
