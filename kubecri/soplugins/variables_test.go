package soplugins

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types/device"
)

// owning is a plugin with variables of its own.
type owning struct {
	fake
	own func() map[string]string
}

func (o *owning) OwnVariables() map[string]string { return o.own() }

// A container gets no device by a variable that is a plugin's, unless it was given some.
func TestWithhold(t *testing.T) {
	of := func(name string, own func() map[string]string) load.Plugin[device.Device] {
		return load.Plugin[device.Device]{Name: name, Value: &owning{fake: fake{name: name}, own: own}}
	}
	gpus := of("gpus", func() map[string]string { return map[string]string{"GPUS": "void", "GPU_MIG": ""} })
	same := of("same", func() map[string]string { return map[string]string{"GPUS": "void"} })
	p, err := New(Config{Node: "a", Loaded: []load.Plugin[device.Device]{
		gpus, same, {Name: "old", Value: &fake{name: "old"}},
		of("panics", func() map[string]string { panic("bad") }),
		of("invalid", func() map[string]string { return map[string]string{"A=B": "x"} }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	given := inject.Edits{Owner: inject.PluginOwner("gpus"), Env: []inject.Variable{{Name: "GPUS", Value: "uuid"}}}
	property := inject.Edits{Owner: "slot", Env: []inject.Variable{{Name: "GPUS", Value: "all", Default: true}}}
	for name, tc := range map[string]struct {
		container inject.Container
		given     []inject.Edits
		want      map[string]string
	}{
		"nothing known of the image":      {inject.Container{}, nil, map[string]string{"GPUS": "void", "GPU_MIG": ""}},
		"its author asks":                 {inject.Container{Env: []string{"GPUS"}}, nil, map[string]string{"GPUS": "void", "GPU_MIG": ""}},
		"neither author nor image asks":   {inject.Container{ImageEnv: true, Env: []string{"PATH"}}, nil, nil},
		"the image asks":                  {inject.Container{ImageEnv: true, Env: []string{"PATH", "GPUS"}}, nil, map[string]string{"GPUS": "void"}},
		"privileged":                      {inject.Container{Privileged: true, Env: []string{"GPUS"}}, nil, nil},
		"it was given some":               {inject.Container{Env: []string{"GPUS"}}, []inject.Edits{given}, map[string]string{"GPU_MIG": ""}},
		"a device's property of the name": {inject.Container{}, []inject.Edits{property}, map[string]string{"GPUS": "void", "GPU_MIG": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]string
			withheld := p.Withhold(tc.container, tc.given)
			for _, e := range withheld {
				if e.Owner != inject.PluginOwner("gpus") {
					t.Errorf("variables of %s", e.Owner)
				}
				for _, v := range e.Env {
					if got == nil {
						got = map[string]string{}
					}
					got[v.Name] = v.Value
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("withheld (-want +got):\n%s", d)
			}
			add, err := inject.Merge(tc.container, append(tc.given, withheld...)...)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range add.Env {
				if want, ok := tc.want[v.Name]; ok && v.Value != want {
					t.Errorf("%s=%s, want %q", v.Name, v.Value, want)
				}
			}
		})
	}
	if got := (*Plugins)(nil).Withhold(inject.Container{}, nil); got != nil {
		t.Errorf("without plugins: %v", got)
	}
}
