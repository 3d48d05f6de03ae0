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
	d := New(registry).SOPlugin("gpu\xff", []string{"Start"}, []string{"panic", "error"})
	d.Called("Start", time.Second)
	d.Faulted("Start", "error")
	d.Up(true)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP kubecri_so_plugin_faults_total [ALPHA] Calls of device plugins, .so files and sockets, that went wrong, by plugin, method and kind: panic, timeout, hanging (not called, since an earlier call has not returned), error, invalid (its result makes no sense), away (not called, since nothing serves its socket).
# TYPE kubecri_so_plugin_faults_total counter
kubecri_so_plugin_faults_total{kind="error",method="Start",plugin="gpu?"} 1
kubecri_so_plugin_faults_total{kind="panic",method="Start",plugin="gpu?"} 0
# HELP kubecri_so_plugin_up [ALPHA] Whether a device plugin, a .so file or a socket, `+
		`is started and says what the node has, by plugin: 1 or 0.
# TYPE kubecri_so_plugin_up gauge
kubecri_so_plugin_up{plugin="gpu?"} 1
`), "kubecri_so_plugin_faults_total", "kubecri_so_plugin_up"); err != nil {
		t.Error(err)
	}
	var none *Metrics
	n := none.SOPlugin("x", nil, nil)
	n.Called("Start", 0)
	n.Faulted("Start", "error")
	n.Up(false)
	none.BadSOPlugins([]string{"x"}, nil)
}
