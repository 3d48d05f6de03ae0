// A scheduler plugin as written for KubeDevice: it turns a count of dongles
// into requests for their ports, and leaves the rest to the group scheduler.
package main

import (
	"fmt"
	"strconv"

	"github.com/Microsoft/KubeDevice-API/pkg/devicescheduler"
	"github.com/Microsoft/KubeDevice-API/pkg/resource"
	"github.com/Microsoft/KubeDevice-API/pkg/types"
	"github.com/Microsoft/KubeDevice-API/pkg/utils"
)

type dongleScheduler struct {
	nodes map[string]bool
}

// CreateDeviceSchedulerPlugin is what the scheduler looks up.
//
//lint:ignore ST1008 KubeDevice calls it so.
func CreateDeviceSchedulerPlugin() (error, devicescheduler.DeviceScheduler) {
	return nil, &dongleScheduler{nodes: make(map[string]bool)}
}

func (ds *dongleScheduler) AddNode(nodeName string, nodeInfo *types.NodeInfo) {
	ds.nodes[nodeName] = true
	utils.Logf(4, "dongle: node %v has %v", nodeName, nodeInfo.Allocatable)
}

func (ds *dongleScheduler) RemoveNode(nodeName string) { delete(ds.nodes, nodeName) }

func (ds *dongleScheduler) translate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	for name, cont := range podInfo.RunningContainers {
		n := cont.Requests["example.com/dongle"]
		if n < 0 {
			return fmt.Errorf("container %s: %d dongles", name, n)
		}
		for i := int64(0); i < n; i++ {
			types.AddGroupResource(cont.DevRequests, "port/"+strconv.FormatInt(i, 10)+"/seats", 1)
		}
		_, cont.DevRequests = resource.TranslateResource(nodeInfo.Allocatable, cont.DevRequests, "hub", "port")
		podInfo.RunningContainers[name] = cont
	}
	return nil
}

func (ds *dongleScheduler) PodFitsDevice(nodeInfo *types.NodeInfo, podInfo *types.PodInfo, fillAllocateFrom bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if err := ds.translate(nodeInfo, podInfo); err != nil {
		var reason devicescheduler.PredicateFailureReason = resource.NewInsufficientResourceError("example.com/dongle", 0, 0, 0)
		return false, []devicescheduler.PredicateFailureReason{reason}, 0.0
	}
	return true, nil, 0.0
}

func (ds *dongleScheduler) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	return ds.translate(nodeInfo, podInfo)
}

func (ds *dongleScheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error   { return nil }
func (ds *dongleScheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }
func (ds *dongleScheduler) GetName() string                                          { return "dongle" }
func (ds *dongleScheduler) UsingGroupScheduler() bool                                { return true }

func main() {}
