// Package nvidiagpu holds the tests of the NVIDIA GPU plugin as a whole. The plugin:
//
//   - node, built from device/main.go: finds GPUs through NVML, gives them to containers
//   - schedule, built from scheduler/main.go: chooses GPUs that are connected well
//   - gpu: what both know
//   - nvmllink: lets a Go plugin contain go-nvml
//   - fakenvml: a fake of NVML, for tests
//
// See docs/plugins.md.
package nvidiagpu
