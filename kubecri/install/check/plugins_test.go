package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/plugins/plugintest"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// widgets is a device plugin with one widget, which may be broken.
type widgets struct{ err error }

func (w *widgets) GetName() string { return "widgets" }
func (w *widgets) New() error      { return nil }
func (w *widgets) Start() error    { return w.err }

func (w *widgets) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Allocatable["resource/group/w/7"], info.KubeAlloc["example.com/widget"] = 1, 1
	return nil
}

func (w *widgets) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return []device.Mount{{ContainerPath: "/lib/w", HostPath: "/"}}, []string{"/dev/null", "v.com/widget=7"}, map[string]string{"WIDGET": "7"}, nil
}

const widget = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"akri.sh/cam":1},"allocatefrom":{"akri.sh/cam/0":"cam-8120fe-0","resource/group/w/0":"resource/group/w/7"}}}}`

// Files are checked without running them; with --start-plugins they are asked.
func TestPlugins(t *testing.T) {
	good, bad := t.TempDir(), t.TempDir()
	plugintest.Build(t, filepath.Join(good, "a.so"), "../../../plugins/example/device")
	if err := os.WriteFile(filepath.Join(bad, "b.so"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		dir    string
		plugin *widgets // nil without --start-plugins
		well   bool
		says   []string
	}{
		{"none", filepath.Join(bad, "none"), nil, true, []string{"plugins    none in"}},
		{"loadable", good, nil, true, []string{"a.so can be loaded", "1 resources of device plugins", "--start-plugins", "main gets slot cam-8120fe-0"}},
		{"not a plugin", bad, nil, false, []string{"FAIL  plugins", "b.so is not a shared object", "plugin-builder"}},
		{"started", good, &widgets{}, true, []string{"1 resources in its annotation", "example.com/widget: 1",
			`main gets from device plugin "widgets": devices /dev/null, CDI devices v.com/widget=7, mounts /:/lib/w, environment WIDGET`, "main gets slot cam-8120fe-0"}},
		{"does not start", good, &widgets{errors.New("no driver")}, false, []string{"FAIL  plugins", "no driver", "main would be refused"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := setup(pod("node-a", widget), "")
			c.Devices = test.dir
			if test.plugin != nil {
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
				defer cancel()
				var err error
				c.Plugins, err = soplugins.New(soplugins.Config{Node: "node-a",
					Loaded: []load.Plugin[device.Device]{{Name: "widgets", Value: test.plugin}}})
				if err != nil {
					t.Fatal(err)
				}
				go c.Plugins.Run(ctx)
				c.Plugins.Tried(ctx)
			}
			wantReport(t, c, test.well, test.says)
		})
	}
}
