// Package gpu is what both halves of the NVIDIA GPU plugin know: how GPUs are
// written as group resources, and which of them belong together.
//
// A node advertises each GPU as two resources in two levels of groups, with KubeGPU's names:
//
//	resource/group/gpugrp1/<i>/gpugrp0/<j>/gpu/<uuid>/cards    1
//	resource/group/gpugrp1/<i>/gpugrp0/<j>/gpu/<uuid>/memory   bytes
//
// and each MIG slice likewise, one stage below its GPU:
//
//	resource/group/gpugrp1/<i>/gpugrp0/<j>/gpu/<uuid>/mig/<uuid>/mig-1g.10gb   1
//	resource/group/gpugrp1/<i>/gpugrp0/<j>/gpu/<uuid>/mig/<uuid>/memory        bytes
//
// The leaf is that of its kind, which is also its resource: nvidia.com/<kind>.
// Where a GPU or a slice is shared, the leaf's amount is the number of replicas.
//
// gpugrp0 is a clique: GPUs that reach each other directly, all through NVLink
// or, where a GPU has no NVLink, all below one PCIe switch. gpugrp1 is a NUMA
// node, or several if a clique spans them, as an NVSwitch's does.
//
// All here is functions of values: no NVML, no Kubernetes, no clock.
package gpu
