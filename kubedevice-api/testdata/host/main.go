// The host stands for Kubeslot's binaries: it knows only Kubeslot's own types,
// and drives the two plugins, of which the arguments are the files, with them.
package main

import (
	"fmt"
	"os"
	"plugin"

	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(deviceFile, schedulerFile string) error {
	createDevice, err := lookup[func() (device.Device, error)](deviceFile, "CreateDevicePlugin")
	if err != nil {
		return err
	}
	createScheduler, err := lookup[func() (error, devicescheduler.DeviceScheduler)](schedulerFile, "CreateDeviceSchedulerPlugin")
	if err != nil {
		return err
	}

	dev, err := createDevice()
	if err != nil {
		return err
	}
	if err := dev.Start(); err != nil {
		return err
	}
	node := types.NewNodeInfoWithName("node")
	if err := dev.UpdateNodeInfo(node); err != nil {
		return err
	}

	err, scheduler := createScheduler()
	if err != nil {
		return err
	}
	// Both see the pod as its author wrote it, when it is filtered and again when
	// it is placed.
	schedulers := []devicescheduler.DeviceScheduler{scheduler, &group.Scheduler{}}
	filtered, pod := newPod(), newPod()
	for _, s := range schedulers {
		s.AddNode(node.Name, node)
		if fits, reasons, _ := s.PodFitsDevice(node, filtered, false); !fits {
			return fmt.Errorf("does not fit: %v", reasons)
		}
	}
	for _, s := range schedulers {
		if err := s.PodAllocate(node, pod); err != nil {
			return err
		}
		if err := s.TakePodResources(node, pod); err != nil {
			return err
		}
	}
	mounts, nodes, env, err := dev.Allocate(pod, pod.GetContainerInPod("main"))
	fmt.Println(scheduler.GetName(), dev.GetName(), len(node.Used), mounts, nodes, env)
	return err
}

func newPod() *types.PodInfo {
	container := types.NewContainerInfo()
	container.Requests["example.com/dongle"] = 2
	pod := types.NewPodInfo()
	pod.Name, pod.RunningContainers["main"] = "pod", *container
	return pod
}

func lookup[F any](file, name string) (f F, err error) {
	p, err := plugin.Open(file)
	if err != nil {
		return f, err
	}
	symbol, err := p.Lookup(name)
	if err != nil {
		return f, err
	}
	f, ok := symbol.(F)
	if !ok {
		return f, fmt.Errorf("%s: %s is a %T, not a %T", file, name, symbol, f)
	}
	return f, nil
}
