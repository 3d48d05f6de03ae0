package metrics

import (
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

// A plugin's series begin at zero, and whatever its name is they can be read.
func TestDevicePlugin(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	d := New(registry).DevicePlugin("gpu\xff", []string{"Start"}, []string{"panic", "error"})
	d.Called("Start", time.Second)
	d.Faulted("Start", "error")
	d.Up(true)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP kubecri_device_plugin_faults_total [ALPHA] Calls of device plugins that went wrong, by plugin, method and kind: panic, timeout, hanging (not called, since an earlier call has not returned), error, invalid (its result makes no sense).
# TYPE kubecri_device_plugin_faults_total counter
kubecri_device_plugin_faults_total{kind="error",method="Start",plugin="gpu?"} 1
kubecri_device_plugin_faults_total{kind="panic",method="Start",plugin="gpu?"} 0
# HELP kubecri_device_plugin_up [ALPHA] Whether a device plugin is started and could say what the node has, by plugin: 1 or 0.
# TYPE kubecri_device_plugin_up gauge
kubecri_device_plugin_up{plugin="gpu?"} 1
`), "kubecri_device_plugin_faults_total", "kubecri_device_plugin_up"); err != nil {
		t.Error(err)
	}
	var none *Metrics
	n := none.DevicePlugin("x", nil, nil)
	n.Called("Start", 0)
	n.Faulted("Start", "error")
	n.Up(false)
	none.BadDevicePlugins([]string{"x"}, nil)
}
