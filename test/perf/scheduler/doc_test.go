// Package scheduler compares the pod scheduling rate of device slots with that
// of its peers, in upstream's scheduler_perf: an API server, etcd and a scheduler
// of its own for each run, and no kubelets.
//
//   - arms_test.go: what is compared: plain extended resources, ours, and DRA's
//   - shapes_test.go: the clusters in which they are compared
//   - config_test.go: an arm and a shape as scheduler_perf's test case
//   - devices_test.go: the devices, made before the pods: ours in
//     deviceslices_test.go, DRA's in resourceslices_test.go, those of allocator DRA in allocatordra_test.go
//   - meter_test.go, writes_test.go: what is measured
//   - invariant_test.go: what must hold after each run
//
// Run it by `make bench-scheduler`; docs/performance.md tells how to read it.
package scheduler
