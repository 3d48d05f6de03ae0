// Package node is the node's half of the NVIDIA GPU plugin.
//
//   - inventory.go: the machine's GPUs and their connections, read through NVML
//   - health.go: GPUs that reported an error that they do not recover from
//   - cdi.go: which GPUs a CDI spec describes
//   - device.go: the same as a device.Device
package node
