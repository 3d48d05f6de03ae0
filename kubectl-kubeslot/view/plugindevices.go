package view

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// PluginDevice is a device of a .so plugin that a container was given.
type PluginDevice struct {
	Container string `json:"container"`
	// Device is where it is among its node's, as the node's annotation has it:
	// resource/group/board/1/widget/3/cards.
	Device string `json:"device"`
}

// pluginDevices are those of a pod that has a node and has not ended, by container and name.
func pluginDevices(pod *corev1.Pod) []PluginDevice {
	if pod.Spec.NodeName == "" || ended(pod) {
		return nil
	}
	info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
	if err != nil || info == nil { // an error is among what is not met
		return nil
	}
	var all []PluginDevice
	for c := range containers(pod) {
		given := info.GetContainerInPod(c.Name)
		if given == nil {
			continue
		}
		for _, request := range slices.Sorted(maps.Keys(given.AllocateFrom)) {
			if !strings.HasPrefix(string(request), assignment.ResourcePrefix) {
				all = append(all, PluginDevice{c.Name, string(given.AllocateFrom[request])})
			}
		}
	}
	return all
}
