// Command gpu checks the NVIDIA GPU plugin on a machine with NVIDIA's driver: `make test-gpu` builds it as
// _output/test-gpu, which needs neither a cluster nor Go nor this repository there.
//
//   - nvidiasmi.go: what nvidia-smi says, read from its XML and its matrix of connections
//   - compare.go: that compared with what the plugin advertises and what NVML says
//   - check.go: the checks, one after the other
//   - cdi.go: the device nodes of what Allocate gives as CDI devices
//   - container.go: what Allocate gives, applied as a container's runtime does, in namespaces of a child process
//   - cuda.go: what a CUDA program in there can do, by libcuda
//   - report.go: the table at the end
//
// It reads and never sets: no MIG mode, no persistence mode, no clocks.
package main
