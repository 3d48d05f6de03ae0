package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/plugins/load"
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
			if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP kubecri_device_plugin_bad_files [ALPHA] Files of --cridevices that were not loaded, by the reason that `+"`kubecri plugin check`"+` gives.
# TYPE kubecri_device_plugin_bad_files gauge
kubecri_device_plugin_bad_files{reason="duplicate"} 0
kubecri_device_plugin_bad_files{reason="failed"} 0
kubecri_device_plugin_bad_files{reason="no-host"} 0
kubecri_device_plugin_bad_files{reason="not-a-plugin"} 1
kubecri_device_plugin_bad_files{reason="unreadable"} 0
kubecri_device_plugin_bad_files{reason="untrusted"} 0
kubecri_device_plugin_bad_files{reason="wrong-build"} 0
kubecri_device_plugin_bad_files{reason="wrong-factory"} 0
kubecri_device_plugin_bad_files{reason="wrong-packages"} 0
`), "kubecri_device_plugin_bad_files"); err != nil {
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
