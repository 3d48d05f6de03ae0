// Package node is the node's half of the NVIDIA GPU plugin.
//
//   - inventory.go, mig.go: the machine's GPUs, their connections and their MIG
//     slices, read through NVML
//   - health.go: GPUs and slices that reported a fault, until they are well again
//   - plan.go: which of them are given out, as what
//   - allocate.go, cdi.go, devicenodes.go: what a container is given, and what it
//     has lost
//   - labels.go: the configuration by the Node's label, and labels of the Node
//   - device.go: the same as a device.Device
package node
