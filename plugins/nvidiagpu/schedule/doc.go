// Package schedule is the scheduler's half of the NVIDIA GPU plugin.
//
//   - ask.go: what a pod asks for
//   - pool.go: what a node has of each kind, and whether the pod can have it
//   - choose.go: which of a node's free GPUs are connected best
//   - order.go: which of those that are connected alike: slices, replicas
//   - place.go: the GPUs of a pod's containers, as requests of the group scheduler
//   - scheduler.go: the same as a devicescheduler.DeviceScheduler
//
// Where the pod leaves the choice to us, we choose, and the group scheduler checks, counts and scores what
// was chosen. Where it names groups itself, or wants none, the group scheduler places.
package schedule
