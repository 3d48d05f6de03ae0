// A device plugin as written for KubeDevice: a license dongle with ports.
package main

import (
	"fmt"
	"strconv"
	"strings"

	devtypes "github.com/Microsoft/KubeDevice-API/pkg/device"
	"github.com/Microsoft/KubeDevice-API/pkg/types"
	"github.com/Microsoft/KubeDevice-API/pkg/utils"
)

const resourceDongle types.ResourceName = "example.com/dongle"

type dongle struct {
	ports int
}

// CreateDevicePlugin is what the node looks up.
func CreateDevicePlugin() (devtypes.Device, error) {
	d := &dongle{}
	return d, d.New()
}

func (d *dongle) New() error      { return nil }
func (d *dongle) Start() error    { d.ports = 2; return nil }
func (d *dongle) GetName() string { return "dongle" }

func (d *dongle) UpdateNodeInfo(nodeInfo *types.NodeInfo) error {
	if d.ports == 0 {
		utils.Errorf("dongle is not started")
		return fmt.Errorf("not started")
	}
	nodeInfo.KubeCap[resourceDongle] = int64(d.ports)
	nodeInfo.KubeAlloc[resourceDongle] = int64(d.ports)
	for i := 0; i < d.ports; i++ {
		types.AddGroupResource(nodeInfo.Capacity, "hub/0/port/"+strconv.Itoa(i)+"/seats", 1)
		types.AddGroupResource(nodeInfo.Allocatable, "hub/0/port/"+strconv.Itoa(i)+"/seats", 1)
	}
	utils.Logf(4, "dongle has %d ports", d.ports)
	return nil
}

func (d *dongle) Allocate(pod *types.PodInfo, cont *types.ContainerInfo) ([]devtypes.Mount, []string, map[string]string, error) {
	var ports []string
	for _, key := range utils.SortedStringKeys(cont.AllocateFrom) {
		from := string(cont.AllocateFrom[types.ResourceName(key)])
		if strings.HasSuffix(from, "/seats") {
			ports = append(ports, strings.Split(from, "/")[5])
		}
	}
	mounts := []devtypes.Mount{{ContainerPath: "/license", HostPath: "/etc", Readonly: true}} // every node has both
	return mounts, []string{"/dev/full"}, map[string]string{"DONGLE_PORTS": strings.Join(ports, ",")}, nil
}

func main() {}
