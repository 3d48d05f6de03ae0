package cdi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/inject"
)

// A prepared ResourceClaim has one spec, with all that a request gives in one device.
func TestSpecOfAResourceClaim(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	i := NewInjector(filepath.Join(dir, "cdi"), runtime{})
	requests := map[string]inject.Additions{
		"cams/first": {Env: []inject.Variable{{Name: "AKRI_DEVICES", Value: "[]"}, {Name: "A", Value: "b=c\nd"}},
			Mounts: []discovery.Mount{{HostPath: "/etc/hosts", ContainerPath: "/a", ReadOnly: true}}},
		"disk": {Devices: []discovery.DeviceSpec{{HostPath: link, ContainerPath: "/dev/cam", Permissions: "rw"}}},
	}
	has := func() bool { all, err := i.Claims(); return err == nil && slices.Equal(all, []types.UID{"u1"}) }
	if has() {
		t.Error("a claim that was not prepared has a spec")
	}
	annotations := map[string]string{"slots.kubeslot.io/prepared": `{"name":"c"}`}
	if err := i.PutClaim("u1", requests, annotations); err != nil {
		t.Fatal(err)
	}
	if noted, err := i.ClaimAnnotations("u1"); err != nil || cmp.Diff(annotations, noted) != "" {
		t.Errorf("annotations: %s (%v)", cmp.Diff(annotations, noted), err)
	}
	if noted, err := i.ClaimAnnotations("u2"); err != nil || noted != nil {
		t.Errorf("a claim that was not prepared has annotations %v (%v)", noted, err)
	}
	data, err := os.ReadFile(i.store.claimPath("u1"))
	if err != nil {
		t.Fatal(err)
	}
	var got specs.Spec
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := specs.Spec{Version: "0.6.0", Kind: "slots.kubeslot.io/claim", Annotations: annotations,
		Devices: []specs.Device{
			{Name: "u1-cams.first", ContainerEdits: specs.ContainerEdits{Env: []string{"AKRI_DEVICES=[]", "A=b=c\nd"},
				Mounts: []*specs.Mount{{HostPath: "/etc/hosts", ContainerPath: "/a", Type: "bind",
					Options: []string{"rbind", "rprivate", "ro"}}}}},
			{Name: "u1-disk", ContainerEdits: specs.ContainerEdits{
				DeviceNodes: []*specs.DeviceNode{{Path: "/dev/cam", HostPath: "/dev/null", Permissions: "rw"}}}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if vendor, class, name, err := parser.ParseQualifiedName(ClaimDevice("u1", "cams/first")); err != nil ||
		vendor+"/"+class != got.Kind || name != got.Devices[0].Name {
		t.Errorf("containers request %s/%s=%s (%v)", vendor, class, name, err)
	}
	if info, err := os.Stat(i.store.claimPath("u1")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v; want mode 0640: properties may be secrets", info, err)
	}
	if err := i.store.prune(func(string) bool { return true }); err != nil || !has() {
		t.Errorf("removed with the specs of devices that are gone (%v)", err)
	}
	if err := i.PutClaim("u1", nil, annotations); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(i.store.claimPath("u1")); err != nil {
		t.Fatal(err)
	}
	got = specs.Spec{}
	if err := json.Unmarshal(data, &got); err != nil || len(got.Devices) != 1 || got.Devices[0].Name != "u1" ||
		len(got.Devices[0].ContainerEdits.Env) == 0 {
		t.Errorf("runtimes refuse a spec without devices, or a device without edits: %s (%v)", data, err)
	}
	for range 2 {
		if err := i.RemoveClaim("u1"); err != nil || has() {
			t.Errorf("not removed: %v", err)
		}
	}
}

func TestWhatASpecOfAResourceClaimCannotHave(t *testing.T) {
	for name, add := range map[string]inject.Additions{
		"a directory as device": {Devices: []discovery.DeviceSpec{{HostPath: "/dev",
			ContainerPath: "/dev/x"}}},
		"an absent device": {Devices: []discovery.DeviceSpec{{HostPath: "/dev/none",
			ContainerPath: "/dev/x"}}},
		"a variable that is not of letters": {Env: []inject.Variable{{Name: "A", Value: "\xff"}}},
	} {
		if data, err := describeClaim("u1", map[string]inject.Additions{"r": add}, nil); err == nil {
			t.Errorf("%s: described as %s", name, data)
		}
	}
}
