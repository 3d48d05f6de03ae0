package widget

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// LayoutEnv has kubecri's environment pretend what hardware there is:
// "<boards>x<widgets of each>". A real plugin would look for it.
const LayoutEnv = "EXAMPLE_WIDGETS"

const defaultLayout = "2x2"

// maxWidgets keeps the node's annotation small.
const maxWidgets = 256

// Device is the node's half. Its methods are never called concurrently.
type Device struct {
	boards, perBoard int
}

var _ device.Device = (*Device)(nil)

// New prepares nothing.
func (d *Device) New() error { return nil }

// Start finds the hardware. After an error the node has no widgets.
func (d *Device) Start() error {
	layout := os.Getenv(LayoutEnv)
	if layout == "" {
		layout = defaultLayout
	}
	var boards, perBoard int
	if n, err := fmt.Sscanf(layout, "%dx%d", &boards, &perBoard); n != 2 || err != nil ||
		boards < 0 || perBoard < 0 || boards > maxWidgets || perBoard > maxWidgets || boards*perBoard > maxWidgets {
		return fmt.Errorf("%s is %q: want <boards>x<widgets of each>, such as %q, and at most %d widgets", LayoutEnv, layout, defaultLayout, maxWidgets)
	}
	d.boards, d.perBoard = boards, perBoard
	return nil
}

// UpdateNodeInfo says what the node has, twice: as a count that any scheduler
// understands, and as the hierarchy that the group scheduler places on.
func (d *Device) UpdateNodeInfo(node *types.NodeInfo) error {
	n := int64(d.boards * d.perBoard)
	node.KubeCap[Resource], node.KubeAlloc[Resource] = n, n
	for i := range d.boards * d.perBoard {
		types.AddGroupResource(node.Capacity, key(i/d.perBoard, i), 1)
		types.AddGroupResource(node.Allocatable, key(i/d.perBoard, i), 1)
	}
	return nil
}

// Allocate tells the container its widgets. A real plugin would return device
// nodes, in the second result, and mounts, in the first.
func (d *Device) Allocate(_ *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	var widgets []string
	for want, from := range c.AllocateFrom {
		// Other plugins' resources are in there as well.
		if !strings.HasPrefix(string(want), types.DeviceGroupPrefix+"/"+boardStage+"/") {
			continue
		}
		var board, widget int
		if _, err := fmt.Sscanf(string(from), types.DeviceGroupPrefix+"/"+boardStage+"/%d/"+widgetStage+"/%d/"+leaf, &board, &widget); err != nil {
			return nil, nil, nil, fmt.Errorf("%q was assigned for %q: not a widget", from, want)
		}
		if widget < 0 || widget >= d.boards*d.perBoard {
			return nil, nil, nil, fmt.Errorf("widget %d was assigned, and there are %d: was one taken out?", widget, d.boards*d.perBoard)
		}
		widgets = append(widgets, fmt.Sprintf("%d-%d", board, widget))
	}
	if len(widgets) == 0 {
		return nil, nil, nil, nil // the container asked for none
	}
	slices.Sort(widgets) // a map has no order, and an environment should
	return nil, nil, map[string]string{"WIDGETS": strings.Join(widgets, ",")}, nil
}

// GetName is unique on the node.
func (d *Device) GetName() string { return "widget" }
