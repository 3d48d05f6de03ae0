package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/plugins/plugintest"
	"github.com/kubeslot/kubeslot/types/device"
)

// A file that is no plugin keeps kubecri from starting, of which the node has one
// event however often it is tried, or is skipped; either way it is counted.
func TestBadPluginFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.so"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for policy, refuses := range map[load.Policy]bool{load.Refuse: true, load.Skip: false} {
		t.Run(string(policy), func(t *testing.T) {
			kube, registry := fake.NewClientset(), componentmetrics.NewKubeRegistry()
			numbers := metrics.New(registry)
			o := &options{nodeName: "node-a", devices: dir, devicesPolicy: policy}
			for range 2 {
				loaded, bad, err := loadPlugins(t.Context(), o, kube, numbers)
				if len(loaded) > 0 || (err != nil) != refuses {
					t.Fatal(loaded, err)
				}
				if refuses && (!strings.Contains(err.Error(), "bad.so") || !strings.Contains(err.Error(), "plugin-builder")) {
					t.Error(err)
				}
				if !refuses && len(bad) != 1 {
					t.Error(bad)
				}
			}
			if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP kubecri_so_plugin_bad_files [ALPHA] Files of --cridevices that were not loaded, by the reason that `+"`kubecri plugin check`"+` gives.
# TYPE kubecri_so_plugin_bad_files gauge
kubecri_so_plugin_bad_files{reason="duplicate"} 0
kubecri_so_plugin_bad_files{reason="failed"} 0
kubecri_so_plugin_bad_files{reason="no-host"} 0
kubecri_so_plugin_bad_files{reason="not-a-plugin"} 1
kubecri_so_plugin_bad_files{reason="unreadable"} 0
kubecri_so_plugin_bad_files{reason="untrusted"} 0
kubecri_so_plugin_bad_files{reason="wrong-build"} 0
kubecri_so_plugin_bad_files{reason="wrong-factory"} 0
kubecri_so_plugin_bad_files{reason="wrong-packages"} 0
`), "kubecri_so_plugin_bad_files"); err != nil {
				t.Error(err)
			}
			events, err := kube.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !refuses {
				if len(events.Items) > 0 { // the recorder's, once it runs
					t.Errorf("events %v", events.Items)
				}
				return
			}
			if len(events.Items) != 1 {
				t.Fatalf("%d events", len(events.Items))
			}
			e := events.Items[0]
			if e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != "node-a" || e.Type != corev1.EventTypeWarning ||
				e.Reason != reasonRefused || !strings.Contains(e.Message, "bad.so") || e.LastTimestamp.IsZero() {
				t.Errorf("%+v", e)
			}
		})
	}
}

// broken is a device plugin that does not start.
type broken struct{ device.Device }

func (broken) New() error   { return nil }
func (broken) Start() error { return errors.New("no driver") }

// What is wrong with a device plugin is advice in /readyz: the kubelet is served.
func TestReadyzTellsOfDevicePlugins(t *testing.T) {
	cluster, err := newCluster(unreachableAPI(t, t.TempDir()), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := soplugins.New(soplugins.Config{Node: "node-a",
		Loaded: []load.Plugin[device.Device]{{Name: "broken", Value: broken{}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	defer cancel()
	go plugins.Run(ctx)
	plugins.Tried(ctx)
	bad := []*load.FileError{{File: "bad.so", Findings: []load.Finding{{Reason: load.NotAPlugin, Text: "is not a shared object"}}}}
	err = devicePluginsAdvice(ctx, t, &node{cluster: cluster, plugins: plugins, badPlugins: bad})
	if err == nil || !strings.Contains(err.Error(), `"broken" failed in Start: no driver`) ||
		!strings.Contains(err.Error(), "not loaded: plugin bad.so is not a shared object") {
		t.Error(err)
	}
}

// devicePluginsAdvice is what the node's check of device plugins says, which is advice.
func devicePluginsAdvice(ctx context.Context, t *testing.T, n *node) error {
	t.Helper()
	checks := n.endpoints().Ready
	i := slices.IndexFunc(checks, func(c health.Check) bool { return c.Name == "device-plugins" })
	if i < 0 || !checks[i].Advice {
		t.Fatalf("no such check, or one that is no advice: %+v", checks)
	}
	return checks[i].Run(ctx)
}

// One bad file does not take the node away: kubecri starts without it unless it is told
// to refuse, and the node says what is not loaded.
func TestBadPluginIsSkippedByDefault(t *testing.T) {
	if got := newOptions().devicesPolicy; got != load.Skip {
		t.Errorf("the default is %s", got)
	}
	c := pluginsCondition([]*load.FileError{{File: "bad.so", Findings: []load.Finding{{Reason: load.NotAPlugin, Text: "is not a shared object"}}}})
	if c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, "plugin bad.so is not a shared object") {
		t.Errorf("%+v", c)
	}
	if c := pluginsCondition(nil); c.Status != corev1.ConditionFalse {
		t.Errorf("%+v", c)
	}
}

// `kubecri check --start-plugins` starts those that can be loaded, and says what is
// wrong with the others itself.
func TestStartPlugins(t *testing.T) {
	plugintest.Once(t)
	dir := t.TempDir()
	plugintest.Build(t, filepath.Join(dir, "example.so"), "../../../plugins/example/device")
	if err := os.WriteFile(filepath.Join(dir, "bad.so"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plugins, err := startPlugins(ctx, &options{nodeName: "node-a", devices: dir})
	if err != nil {
		t.Fatal(err)
	}
	info, settled := plugins.NodeInfo()
	if info.KubeAlloc["example.com/widget"] != 4 || !settled || plugins.Failing() != nil {
		t.Errorf("%+v, settled %t, %v", info, settled, plugins.Failing())
	}
}
