package nri

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/inject"
)

func TestWhatMattersOfAnNRIContainer(t *testing.T) {
	got := requested(&api.Container{
		Env:    []string{"A=a=b", "B="},
		Mounts: []*api.Mount{{Destination: "/v", Type: "bind"}, {Destination: "/proc", Type: "proc"}},
		Linux:  &api.LinuxContainer{Namespaces: []*api.LinuxNamespace{{Type: "user"}}},

		CDIDevices: []*api.CDIDevice{{Name: "v.com/a=b"}},
	})
	if diff := cmp.Diff(inject.Container{Env: []string{"A", "B"}, ImageEnv: true, Mounts: []string{"/v"},
		CDI: []string{"v.com/a=b"}, Users: inject.UserNamespace{Unknown: true}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAdjustment(t *testing.T) {
	null := func(path string) *api.LinuxDevice {
		d, err := deviceNode("/dev/null", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	rule := func(allow bool, access string) *api.LinuxDeviceCgroup {
		return &api.LinuxDeviceCgroup{Allow: allow, Type: "c", Major: api.Int64(1), Minor: api.Int64(3), Access: access}
	}
	linux := func(d *api.LinuxDevice, rules ...*api.LinuxDeviceCgroup) *api.ContainerAdjustment {
		a := &api.ContainerAdjustment{Linux: &api.LinuxContainerAdjustment{Devices: []*api.LinuxDevice{d}}}
		if len(rules) > 0 {
			a.Linux.Resources = &api.LinuxResources{Devices: rules}
		}
		return a
	}
	owned := null("/dev/x")
	owned.Uid, owned.Gid = api.UInt32(uint32(1000)), api.UInt32(uint32(44))
	device := func(permissions string) inject.Additions {
		return inject.Additions{Devices: []discovery.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: permissions}}}
	}
	mounts := inject.Additions{Mounts: []discovery.Mount{{HostPath: "/h", ContainerPath: "/c", ReadOnly: true}, {HostPath: "/i", ContainerPath: "/d"}}}
	privileged := &api.Container{Linux: &api.LinuxContainer{
		Devices:   []*api.LinuxDevice{{Path: "/dev/x", Type: "c", Major: 1, Minor: 3}},
		Resources: &api.LinuxResources{Devices: []*api.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}, {Allow: true, Access: "rwm"}}}}}
	for _, test := range []struct {
		name      string
		add       inject.Additions
		container *api.Container
		want      *api.ContainerAdjustment
	}{
		{name: "CDI names and annotations", add: inject.Additions{CDI: []string{"akri.sh/a=b"}, Annotations: map[string]string{"k": "v"}},
			want: &api.ContainerAdjustment{CDIDevices: []*api.CDIDevice{{Name: "akri.sh/a=b"}}, Annotations: map[string]string{"k": "v"}}},
		{name: "a variable's name that NRI would take for one to remove", add: inject.Additions{Env: []inject.Variable{{Name: "-PATH", Value: "x"}, {Name: "A", Value: "\xffz"}}},
			want: &api.ContainerAdjustment{Env: []*api.KeyValue{{Key: "A", Value: "\uFFFDz"}}}},
		{name: "mounts", add: mounts, want: &api.ContainerAdjustment{Mounts: []*api.Mount{
			{Destination: "/c", Source: "/h", Type: "bind", Options: []string{"rbind", "rprivate", "ro"}},
			{Destination: "/d", Source: "/i", Type: "bind", Options: []string{"rbind", "rprivate", "rw"}}}}},
		{name: "mounts into a user namespace", add: inject.Additions{Mounts: mounts.Mounts[:1], Users: inject.UserNamespace{Unknown: true}},
			want: &api.ContainerAdjustment{Mounts: []*api.Mount{
				{Destination: "/c", Source: "/h", Type: "bind", Options: []string{"rbind", "rprivate", "ro", "ridmap"}}}}},
		{name: "what NRI permits", add: device("rw"), want: linux(null("/dev/x"))},
		{name: "more than NRI permits", add: device("rwm"), want: linux(null("/dev/x"), rule(true, "m"))},
		{name: "less than NRI permits", add: device("r"), want: linux(null("/dev/x"), rule(false, "w"))},
		{name: "another set", add: device("mr"), want: linux(null("/dev/x"), rule(true, "m"), rule(false, "w"))},
		{name: "a device node that is in a directory, too", add: inject.Additions{Devices: append(device("r").Devices,
			device("rw").Devices...)}, want: linux(null("/dev/x"), rule(false, "w"), rule(true, "rw"))},
		{name: "to a user that is not root, as CDI gives it", add: device("rw"), want: linux(owned),
			container: &api.Container{User: &api.User{Uid: 1000, Gid: 44}}},
		{name: "from a privileged container nothing is taken away", add: device("r"), container: privileged, want: linux(null("/dev/x"))},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := adjust(test.add, test.container)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeviceNodes(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"deep/two", "one"} {
		err := unix.Mknod(filepath.Join(dir, path), unix.S_IFCHR|0o640, int(unix.Mkdev(1, 3)))
		if errors.Is(err, unix.EPERM) {
			t.Skip("making device nodes needs root")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("one", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		host, container string
		want            string // container paths, or a part of the error
	}{
		{"one", "/dev/x", "/dev/x"},
		{"link", "/dev/x", "/dev/x"},
		{"", "/dev/all", "/dev/all/deep/two /dev/all/one"},
		{"deep", "/dev/all", "/dev/all/two"},
		{"file", "/dev/x", "no device node"},
		{"absent", "/dev/x", "no such file"},
	} {
		nodes, err := deviceNodes(filepath.Join(dir, test.host), test.container, nil)
		var paths []string
		for _, n := range nodes {
			paths = append(paths, n.Path)
			if n.Type != "c" || n.Major != 1 || n.Minor != 3 || n.FileMode.Value != 0o640 {
				t.Errorf("%q: %v", test.host, n)
			}
		}
		if err != nil {
			paths = append(paths, err.Error())
		}
		if got := strings.Join(paths, " "); !strings.Contains(got, test.want) || err == nil && got != test.want {
			t.Errorf("%q: got %q, want %q", test.host, got, test.want)
		}
	}
}

func TestTwoDevicesAtOnePath(t *testing.T) {
	container := &api.Container{Linux: &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/x", Type: "c", Major: 81, Minor: 0}}}}
	add, err := inject.Merge(inject.Container{}, inject.Edits{Owner: "slot cam-a1-0", Devices: []discovery.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "rw"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = adjust(add, container)
	if want := (inject.Conflict{First: "a device of the pod", Second: "slot cam-a1-0", Field: "the path /dev/x"}); err == nil || err.Error() != want.Error() {
		t.Errorf("got %v, want %v", err, &want)
	}
	add.Devices[0].HostPath = "/dev/none"
	if _, err = adjust(add, container); err == nil || !strings.Contains(err.Error(), "/dev/none of slot cam-a1-0") {
		t.Errorf("got %v, want an error with the owner", err)
	}
}
