package inject

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery"
)

// What device plugins give comes after what slots bring, in the order of the
// plugins; their variables win over the container's own and over properties.
func TestAnswers(t *testing.T) {
	cam := grant(t, "cam-a0-0", "u", discovery.Device{Properties: map[string]string{"URL": "cam", "GPU": "all", "GPU_A0": "all"},
		DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/video0", HostPath: "/dev/video0"}}})
	cam.CDI = "akri.sh/cam=a0"
	container := Container{Env: []string{"GPU", "HOME"}, Mounts: []string{"/data"}}
	add, err := Add(container, []Grant{cam},
		Answer{Plugin: "b", Env: map[string]string{"GPU": "1", "B": "b"}, Devices: []string{"/dev/gpu1"}, CDI: []string{"v.com/gpu=1", "akri.sh/cam=a0"}},
		Answer{Plugin: "a", Env: map[string]string{"A": "", "B": "b", "GPU_A0": "1"}, Mounts: []discovery.Mount{{ContainerPath: "/lib/gpu", HostPath: "/usr/lib/gpu", ReadOnly: true}},
			Devices: []string{"/dev/gpu1", "/dev/ctl"}})
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, v := range add.Env {
		if v.Name != DevicesEnv {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	if want := []string{"GPU_A0_A0=all", "URL=cam", "URL_A0=cam", "B=b", "GPU=1", "A=", "GPU_A0=1"}; !slices.Equal(env, want) {
		t.Errorf("environment %q, want %q", env, want)
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

	// Without slots there is no list of them.
	add, err = Add(container, nil, Answer{Plugin: "a", Env: map[string]string{"GPU": "1"}})
	if err != nil || len(add.Env) != 1 || len(add.Annotations) != 0 || add.None() {
		t.Errorf("%+v, %v", add, err)
	}
	if add, err := Add(container, nil); err != nil || !add.None() {
		t.Errorf("%+v, %v", add, err)
	}
}

func TestAnswersThatClash(t *testing.T) {
	mount := func(from, to string) []discovery.Mount {
		return []discovery.Mount{{ContainerPath: to, HostPath: from}}
	}
	for name, test := range map[string]struct {
		answers []Answer
		err     []string
	}{
		"variable": {[]Answer{{Plugin: "a", Env: map[string]string{"X": "1"}}, {Plugin: "b", Env: map[string]string{"X": "2"}}}, []string{`"a"`, `"b"`, "variable X"}},
		"mount":    {[]Answer{{Plugin: "a", Mounts: mount("/a", "/x")}, {Plugin: "b", Mounts: mount("/b", "/x")}}, []string{`"a"`, `"b"`, "/x"}},
		"volume":   {[]Answer{{Plugin: "a", Mounts: mount("/a", "/data")}}, []string{`"a"`, "volume", "/data"}},
		"slot":     {[]Answer{{Plugin: "a", Mounts: mount("/a", "/cam")}}, []string{`"a"`, "cam-a0-0", "/cam"}},
	} {
		t.Run(name, func(t *testing.T) {
			cam := grant(t, "cam-a0-0", "u", discovery.Device{Mounts: mount("/run/cam", "/cam")})
			_, err := Add(Container{Mounts: []string{"/data"}}, []Grant{cam}, test.answers...)
			for _, part := range test.err {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v lacks %q", err, part)
				}
			}
		})
	}
}
