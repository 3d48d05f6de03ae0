// Package defaults makes Kubeslot's plugins part of the scheduler's default
// configuration, so that they are on whether or not the user's --config names
// them, in every profile, unless it disables them.
//
// It extends the defaulting of KubeSchedulerConfiguration itself, which the
// upstream command applies both to the built-in configuration and to a file.
package defaults

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	configv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	pluginconfig "github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/configurationresources"
	"github.com/kubeslot/kubeslot/kube-scheduler/deviceplugins"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Install changes the process-wide scheduler configuration scheme. Call it
// before the scheduler command runs.
func Install() {
	for _, s := range []*runtime.Scheme{scheme.Scheme, configv1.GetPluginArgConversionScheme()} {
		pluginconfig.AddToScheme(s)
	}
	scheme.Scheme.AddTypeDefaultingFunc(&kubeschedulerv1.KubeSchedulerConfiguration{}, func(obj any) {
		apply(obj.(*kubeschedulerv1.KubeSchedulerConfiguration))
	})
}

func apply(cfg *kubeschedulerv1.KubeSchedulerConfiguration) {
	configv1.SetObjectDefaults_KubeSchedulerConfiguration(cfg)
	for i := range cfg.Profiles {
		enable(&cfg.Profiles[i])
	}
}

// enable turns the plugins on in a profile that upstream has defaulted.
func enable(profile *kubeschedulerv1.KubeSchedulerProfile) {
	turnOn(profile.Plugins, deviceplugins.Name)
	if turnOn(profile.Plugins, configurationresources.Name) {
		// DefaultPreemption, which knows of no slots, has the last word on a PodGroup.
		first(&profile.Plugins.PodGroupPostFilter, configurationresources.Name)
		configureSlots(profile)
	}
}

// turnOn reports whether the plugin is on: unless it is disabled.
func turnOn(plugins *kubeschedulerv1.Plugins, plugin string) bool {
	multi := &plugins.MultiPoint
	if !named(multi.Enabled, plugin) {
		if named(multi.Disabled, plugin) || named(multi.Disabled, "*") {
			return false
		}
		multi.Enabled = append(multi.Enabled, kubeschedulerv1.Plugin{Name: plugin})
	}
	// It must bind before DefaultBinder, which binds every pod.
	first(&plugins.Bind, plugin)
	return true
}

// first puts the plugin before those of an extension point, unless it is disabled there. Plugins
// named for an extension point come before those of MultiPoint.
func first(at *kubeschedulerv1.PluginSet, plugin string) {
	if !named(at.Enabled, plugin) && !named(at.Disabled, plugin) {
		at.Enabled = slices.Insert(at.Enabled, 0, kubeschedulerv1.Plugin{Name: plugin})
	}
}

func configureSlots(profile *kubeschedulerv1.KubeSchedulerProfile) {
	const plugin = configurationresources.Name
	if !slices.ContainsFunc(profile.PluginConfig, func(c kubeschedulerv1.PluginConfig) bool { return c.Name == plugin }) {
		args := &pluginconfig.ConfigurationResourcesArgs{}
		args.SetDefaults()
		args.SetGroupVersionKind(kubeschedulerv1.SchemeGroupVersion.WithKind("ConfigurationResourcesArgs"))
		profile.PluginConfig = append(profile.PluginConfig, kubeschedulerv1.PluginConfig{Name: plugin, Args: runtime.RawExtension{Object: args}})
	}
	// The node's akri.sh amounts count the same shared slots on every node; the
	// ledger, and not their sum, says what is free.
	for i := range profile.PluginConfig {
		if profile.PluginConfig[i].Name != names.NodeResourcesFit {
			continue
		}
		args, ok := profile.PluginConfig[i].Args.Object.(*kubeschedulerv1.NodeResourcesFitArgs)
		if ok && !slices.Contains(args.IgnoredResourceGroups, akriv0.GroupName) {
			args.IgnoredResourceGroups = append(args.IgnoredResourceGroups, akriv0.GroupName)
		}
	}
}

func named(plugins []kubeschedulerv1.Plugin, name string) bool {
	return slices.ContainsFunc(plugins, func(p kubeschedulerv1.Plugin) bool { return p.Name == name })
}
