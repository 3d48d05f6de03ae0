package defaults

import (
	"slices"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	pluginconfig "github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/configurationresources"
	"github.com/kubeslot/kubeslot/kube-scheduler/deviceplugins"
)

const header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestPluginsAreOnUnlessDisabled(t *testing.T) {
	Install()
	for _, name := range []string{configurationresources.Name, deviceplugins.Name} {
		t.Run(name, func(t *testing.T) { testIsOnUnlessDisabled(t, name) })
	}
}

func testIsOnUnlessDisabled(t *testing.T, name string) {
	slots := name == configurationresources.Name
	tests := map[string]struct {
		file string
		on   []bool // by profile
	}{
		"no file":             {"", []bool{true}},
		"empty file":          {header, []bool{true}},
		"two profiles":        {header + "profiles: [{schedulerName: a}, {schedulerName: b}]", []bool{true, true}},
		"other plugins":       {header + "profiles: [{plugins: {multiPoint: {disabled: [{name: ImageLocality}]}}}]", []bool{true}},
		"disabled":            {header + "profiles: [{plugins: {multiPoint: {disabled: [{name: " + name + "}]}}}]", []bool{false}},
		"all disabled":        {header + "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}]}}}]", []bool{false}},
		"disabled in one":     {header + "profiles: [{schedulerName: a, plugins: {multiPoint: {disabled: [{name: " + name + "}]}}}, {schedulerName: b}]", []bool{false, true}},
		"named by the user":   {header + "profiles: [{plugins: {multiPoint: {enabled: [{name: " + name + ", weight: 7}]}}}]", []bool{true}},
		"own fit arguments":   {header + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResourceGroups: [example.com]}}]}]", []bool{true}},
		"own bind plugin too": {header + "profiles: [{plugins: {bind: {enabled: [{name: Other}]}}}]", []bool{true}},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			cfg := load(t, test.file)
			if len(cfg.Profiles) != len(test.on) {
				t.Fatalf("%d profiles, want %d", len(cfg.Profiles), len(test.on))
			}
			for i, want := range test.on {
				plugins := cfg.Profiles[i].Plugins
				count := 0
				for _, p := range plugins.MultiPoint.Enabled {
					if p.Name == name {
						count++
					}
				}
				if (count == 1) != want || count > 1 {
					t.Errorf("profile %d enables it %d times, want on: %v", i, count, want)
				}
				binds := func(name string) int {
					return slices.IndexFunc(plugins.Bind.Enabled, func(p config.Plugin) bool { return p.Name == name })
				}
				if other := binds("Other"); binds(name) >= 0 != want || other >= 0 && binds(name) > other {
					t.Errorf("profile %d binds with %v, want it before others: %v", i, plugins.Bind.Enabled, want)
				}
				if !slots {
					continue
				}
				fit := argsOf[config.NodeResourcesFitArgs](&cfg.Profiles[i]) // nil without the plugin
				if ignores := fit != nil && slices.Contains(fit.IgnoredResourceGroups, "akri.sh"); ignores != want {
					t.Errorf("profile %d: NodeResourcesFit ignores akri.sh: %v, want %v", i, ignores, want)
				}
			}
		})
	}
}

func TestArguments(t *testing.T) {
	Install()
	args := func(text string) string {
		return header + "profiles: [{pluginConfig: [{name: ConfigurationResources, args: {" + text + "}}]}]"
	}
	of := func(cfg *config.KubeSchedulerConfiguration) *pluginconfig.ConfigurationResourcesArgs {
		t.Helper()
		found := argsOf[pluginconfig.ConfigurationResourcesArgs](&cfg.Profiles[0])
		if found == nil {
			t.Fatal("no arguments")
		}
		return found
	}
	if a := of(load(t, "")); a.Strategy != ledger.Spread || *a.NodeScore.LocalDevices != 1 || a.ClaimMode != pluginconfig.ClaimByNode ||
		a.NominationTimeout.Duration != 5*time.Minute || a.Validate() != nil {
		t.Errorf("defaults: %+v", a)
	}
	if a := of(load(t, args("strategy: Pack, nodeScore: {localDevices: 0}"))); a.Strategy != ledger.Pack || *a.NodeScore.LocalDevices != 0 || *a.NodeScore.FreeSlots != 1 {
		t.Errorf("as written: %+v", a)
	}
	if a := of(load(t, args("claimMode: Scheduler"))); a.ClaimMode != pluginconfig.ClaimByScheduler || a.Validate() != nil {
		t.Errorf("as written: %+v", a)
	}
	for written, want := range map[string]time.Duration{"90s": 90 * time.Second, "1s": time.Second, "0s": 5 * time.Minute} {
		if a := of(load(t, args("nominationTimeout: "+written))); a.NominationTimeout.Duration != want || a.Validate() != nil {
			t.Errorf("nominationTimeout %s: %+v", written, a)
		}
	}
	for _, bad := range []string{"strategy: Random", "claimMode: Both", "nominationTimeout: 1ms", "nominationTimeout: 999ms", "nominationTimeout: -5m", "nodeScore: {freeSlots: 101}", "nodeScore: {localDevices: -1}", "nodeScore: {freeSlots: 0, localDevices: 0}"} {
		if err := of(load(t, args(bad))).Validate(); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	if _, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(args("stratgy: Pack")), nil, nil); err == nil {
		t.Error("a misspelt field: no error")
	}
}

func load(t *testing.T, file string) *config.KubeSchedulerConfiguration {
	t.Helper()
	if file == "" {
		cfg, err := latest.Default()
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(file), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*config.KubeSchedulerConfiguration)
}

// argsOf are the arguments of the type A, nil if there are none.
func argsOf[A any](profile *config.KubeSchedulerProfile) *A {
	for _, c := range profile.PluginConfig {
		if args, ok := any(c.Args).(*A); ok {
			return args
		}
	}
	return nil
}
