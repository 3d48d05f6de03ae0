package inject

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/discovery"
)

// merge is how the ways onto a node use the package: slots first, then plugins.
func merge(c Container, resource string, grants []Grant, plugins ...Edits) (Additions, error) {
	edits, err := SlotEdits(resource, grants)
	if err != nil {
		return Additions{}, err
	}
	return Merge(c, append(edits, plugins...)...)
}

func env(kv ...string) []Variable {
	var all []Variable
	for i := 0; i < len(kv); i += 2 {
		all = append(all, Variable{Name: kv[i], Value: kv[i+1]})
	}
	return all
}

func nodes(paths ...string) []discovery.DeviceSpec {
	var all []discovery.DeviceSpec
	for _, p := range paths {
		all = append(all, discovery.DeviceSpec{HostPath: p, ContainerPath: p})
	}
	return all
}

// What device plugins give comes after what slots bring, in the order of the
// plugins; their variables win over the container's own and over properties.
func TestMerge(t *testing.T) {
	cam := grant(t, "cam-a0-0", "u", discovery.Device{Properties: map[string]string{"URL": "cam", "GPU": "all", "GPU_A0": "all"}, Variables: map[string]bool{"URL": true, "GPU": true, "GPU_A0": true},
		DeviceSpecs: nodes("/dev/video0")})
	cam.CDI = "akri.sh/cam=a0"
	container := Container{Env: []string{"GPU", "HOME"}, Mounts: []string{"/data"}}
	b := Edits{Owner: PluginOwner("b"), Env: env("B", "b", "GPU", "1"), Devices: nodes("/dev/gpu1"), CDI: []string{"v.com/gpu=1", "akri.sh/cam=a0"}}
	a := Edits{Owner: PluginOwner("a"), Env: env("A", "", "B", "b", "GPU_A0", "1"), Devices: nodes("/dev/gpu1", "/dev/ctl"),
		Mounts: []discovery.Mount{{ContainerPath: "/lib/gpu/", HostPath: "/usr/lib/gpu", ReadOnly: true}}}
	add, err := merge(container, "", []Grant{cam}, b, a)
	if err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, v := range add.Env {
		if v.Name != DevicesEnv {
			variables = append(variables, v.Name+"="+v.Value)
		}
	}
	if want := []string{"GPU_A0_A0=all", "URL=cam", "URL_A0=cam", "B=b", "GPU=1", "A=", "GPU_A0=1"}; !slices.Equal(variables, want) {
		t.Errorf("environment %q, want %q", variables, want)
	}
	if want := []string{"akri.sh/cam=a0", "v.com/gpu=1"}; !slices.Equal(add.CDI, want) {
		t.Errorf("CDI devices %q, want %q", add.CDI, want)
	}
	if want := []discovery.DeviceSpec{{ContainerPath: "/dev/gpu1", HostPath: "/dev/gpu1", Permissions: "rwm"}, {ContainerPath: "/dev/ctl", HostPath: "/dev/ctl", Permissions: "rwm"}}; !slices.Equal(add.Devices, want) {
		t.Errorf("devices %v, want %v", add.Devices, want)
	}
	if len(add.Mounts) != 1 || !add.Mounts[0].ReadOnly || len(add.Annotations) != 1 {
		t.Errorf("%+v", add)
	}
	slot, pa, pb := "slot cam-a0-0", `device plugin "a"`, `device plugin "b"`
	want := Owners{
		Env:         map[string]string{"GPU_A0_A0": slot, "URL": slot, "URL_A0": slot, "AKRI_DEVICES": "kubecri", "A": pa, "B": pb, "GPU": pb, "GPU_A0": pa},
		Paths:       map[string]string{"/data": "a volume of the pod", "/dev/video0": slot, "/dev/gpu1": pb, "/dev/ctl": pa, "/lib/gpu": pa},
		CDI:         map[string]string{"akri.sh/cam=a0": slot, "v.com/gpu=1": pb},
		Annotations: map[string]string{"akri.agent.slot-cam-a0-0": slot},
	}
	if diff := cmp.Diff(want, add.Owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}

	// Without slots there is no list of them.
	add, err = merge(container, "", nil, Edits{Owner: PluginOwner("a"), Env: env("GPU", "1")})
	if err != nil || len(add.Env) != 1 || len(add.Annotations) != 0 || add.None() {
		t.Errorf("%+v, %v", add, err)
	}
	if add, err := merge(container, "", nil); err != nil || !add.None() {
		t.Errorf("%+v, %v", add, err)
	}
}

func TestConflicts(t *testing.T) {
	mount := func(from, to string) []discovery.Mount {
		return []discovery.Mount{{ContainerPath: to, HostPath: from}}
	}
	for name, test := range map[string]struct {
		edits []Edits
		want  Conflict
	}{
		"variable":                  {[]Edits{{Owner: "a", Env: env("X", "1")}, {Owner: "b", Env: env("X", "2")}}, Conflict{"a", "b", "the variable X, with different values,"}},
		"the list of devices":       {[]Edits{{Owner: "a", Env: env("AKRI_DEVICES", "[]")}}, Conflict{"kubecri", "a", "the variable AKRI_DEVICES, with different values,"}},
		"mount":                     {[]Edits{{Owner: "a", Mounts: mount("/a", "/x")}, {Owner: "b", Mounts: mount("/b", "/x/")}}, Conflict{"a", "b", "the path /x"}},
		"mount, read-only or not":   {[]Edits{{Owner: "a", Mounts: mount("/a", "/x")}, {Owner: "b", Mounts: []discovery.Mount{{HostPath: "/a", ContainerPath: "/x", ReadOnly: true}}}}, Conflict{"a", "b", "the path /x"}},
		"mount and device node":     {[]Edits{{Owner: "a", Mounts: mount("/dev/x", "/dev/x")}, {Owner: "b", Devices: nodes("/dev/x")}}, Conflict{"a", "b", "the path /dev/x"}},
		"device node":               {[]Edits{{Owner: "a", Devices: nodes("/dev/x")}, {Owner: "b", Devices: []discovery.DeviceSpec{{HostPath: "/dev/y", ContainerPath: "/dev/x"}}}}, Conflict{"a", "b", "the path /dev/x"}},
		"by CDI and not":            {[]Edits{{Owner: "a", Mounts: mount("/a", "/x"), CDI: []string{"v.com/c=1"}, ByCDI: true}, {Owner: "b", Mounts: mount("/b", "/x")}}, Conflict{"a", "b", "the path /x"}},
		"volume":                    {[]Edits{{Owner: "a", Mounts: mount("/a", "/data")}}, Conflict{"a volume of the pod", "a", "the path /data"}},
		"the pod's device":          {[]Edits{{Owner: "a", Devices: []discovery.DeviceSpec{{HostPath: "/dev/own", ContainerPath: "/dev/own", Permissions: "r"}}}}, Conflict{"a device of the pod", "a", "the path /dev/own"}},
		"slot":                      {[]Edits{{Owner: "a", Mounts: mount("/a", "/cam")}}, Conflict{"slot cam-a0-0", "a", "the path /cam"}},
		"annotation":                {[]Edits{{Owner: "a", Annotations: map[string]string{"k": "1"}}, {Owner: "b", Annotations: map[string]string{"k": "2"}}}, Conflict{"a", "b", "the annotation k, with different values,"}},
		"a slot's annotation":       {[]Edits{{Owner: "a", Annotations: map[string]string{"akri.agent.slot-cam-a0-0": "x"}}}, Conflict{"slot cam-a0-0", "a", "the annotation akri.agent.slot-cam-a0-0, with different values,"}},
		"the third with the second": {[]Edits{{Owner: "a"}, {Owner: "b", Env: env("X", "1")}, {Owner: "c", Env: env("X", "")}}, Conflict{"b", "c", "the variable X, with different values,"}},
	} {
		t.Run(name, func(t *testing.T) {
			cam := grant(t, "cam-a0-0", "u", discovery.Device{Mounts: mount("/run/cam", "/cam")})
			container := Container{Mounts: []string{"/data"}, Devices: []discovery.DeviceSpec{{HostPath: "/dev/own", ContainerPath: "/dev/own", Permissions: "rwm"}}}
			_, err := merge(container, "", []Grant{cam}, test.edits...)
			var got *Conflict
			if !errors.As(err, &got) || *got != test.want {
				t.Fatalf("got %v, want %v", err, &test.want)
			}
			for _, part := range []string{test.want.First, test.want.Second, test.want.Field} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// A device plugin's CDI device is refused where the runtime would leave it out.
func TestNoCDI(t *testing.T) {
	gives := Edits{Owner: PluginOwner("gpu"), CDI: []string{"v.com/gpu=1"}}
	_, err := Merge(Container{NoCDI: true}, gives)
	if err == nil || !strings.Contains(err.Error(), `device plugin "gpu" gives CDI device "v.com/gpu=1"`) {
		t.Error(err)
	}
	if _, err := Merge(Container{NoCDI: true}, Edits{Owner: "a",
		Annotations: map[string]string{"k": "v"}}); err != nil {
		t.Error(err)
	}
}

// Whatever is merged: each field of the result has an owner, who asked for just that;
// nobody who asked for something else of a field that is not a default is passed over;
// and nothing is added twice.
func TestEachFieldHasItsOwner(t *testing.T) {
	few := func(t *rapid.T, label string) string {
		return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		var edits []Edits
		of := map[string]Edits{}
		for i := range rapid.IntRange(0, 4).Draw(t, "owners") {
			e := Edits{Owner: fmt.Sprint("owner ", i), ByCDI: rapid.Bool().Draw(t, "by CDI")}
			for range rapid.IntRange(0, 2).Draw(t, "fields") {
				e.Env = append(e.Env, Variable{few(t, "name"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"), rapid.Bool().Draw(t, "default")})
				e.Mounts = append(e.Mounts, discovery.Mount{ContainerPath: "/" + few(t, "to"), HostPath: "/" + few(t, "from")})
				e.CDI = append(e.CDI, "v.com/c="+few(t, "device"))
			}
			edits, of[e.Owner] = append(edits, e), e
		}
		own := []string{few(t, "own")}
		add, err := Merge(Container{Env: own}, edits...)
		var conflict *Conflict
		if errors.As(err, &conflict) {
			_, first := of[conflict.First]
			_, second := of[conflict.Second]
			if !first || !second {
				t.Fatalf("%v is not between two of the owners", conflict)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, v := range add.Env {
			has := slices.ContainsFunc(of[add.Owners.Env[v.Name]].Env, func(o Variable) bool { return o.Name == v.Name && o.Value == v.Value })
			if !has || names[v.Name] {
				t.Fatalf("%s=%s is %q's, or there twice: %+v", v.Name, v.Value, add.Owners.Env[v.Name], add.Env)
			}
			names[v.Name] = true
		}
		for _, m := range add.Mounts {
			if owner := of[add.Owners.Paths[path.Clean(m.ContainerPath)]]; owner.ByCDI || !slices.Contains(owner.Mounts, m) {
				t.Fatalf("%+v is %q's", m, owner.Owner)
			}
		}
		if len(add.Owners.CDI) != len(add.CDI) {
			t.Fatalf("%v for %v", add.Owners.CDI, add.CDI)
		}
		for _, e := range edits {
			for _, v := range e.Env {
				if !v.Default && !slices.Contains(add.Env, Variable{Name: v.Name, Value: v.Value}) {
					t.Fatalf("%s=%s of %s is lost: %+v", v.Name, v.Value, e.Owner, add.Env)
				}
				if v.Default && !names[v.Name] && !slices.Contains(own, v.Name) {
					t.Fatalf("nobody sets %s: %+v", v.Name, add.Env)
				}
			}
		}
		for name := range maps.Keys(names) {
			firm := slices.ContainsFunc(edits, func(e Edits) bool {
				return slices.ContainsFunc(e.Env, func(v Variable) bool { return v.Name == name && !v.Default })
			})
			if slices.Contains(own, name) && !firm {
				t.Fatalf("the container's own %s is overridden by a default", name)
			}
		}
	})
}
