package deviceplugins

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/schedule"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// What docs/nvidia-gpus.md says that a pod may ask of GPUs counts as answered for,
// although the plugin does not say which names it knows, and although a value may
// be the one that it takes anyway.
func TestGPURequestsAreKnown(t *testing.T) {
	info := types.NewNodeInfo()
	var gpus []gpu.GPU
	for i := range 4 {
		gpus = append(gpus, gpu.GPU{UUID: fmt.Sprintf("GPU-%d", i), Node: "0", Clique: fmt.Sprint(i / 2), Memory: 80 << 30})
	}
	for i := range 2 {
		gpus = append(gpus,
			gpu.GPU{UUID: fmt.Sprintf("GPU-s%d", i), Node: "1", Clique: "2", Memory: 80 << 30, Kind: "gpu.shared",
				Count: 4},
			gpu.GPU{UUID: "GPU-m", Slice: fmt.Sprintf("MIG-%d", i), Node: "1", Clique: "3", Memory: 10 << 30,
				Kind: "mig-1g.10gb"},
			gpu.GPU{UUID: fmt.Sprintf("GPU-r%d", i), Node: "1", Clique: "4", Memory: 80 << 30, Kind: "a100"})
	}
	gpu.Write(info.Allocatable, gpus)
	text, err := assignment.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{assignment.Annotation: text}}}
	for name, test := range map[string]struct {
		pod  string
		fits bool
	}{
		"count":           {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":2}}}}`, true},
		"memory":          {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1,"gpu/memory":68719476736}}}}`, true},
		"too much memory": {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1,"gpu/memory":687194767360}}}}`, false},
		"pod's memory":    {`{"requests":{"gpu/memory":1073741824},"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1}}}}`, true},
		"topology 1":      {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1,"gpu/gpu-generate-topology":1}}}}`, true},
		"topology 0":      {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":2,"gpu/gpu-generate-topology":0}}}}`, true},
		"topology 2":      {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1,"gpu/gpu-generate-topology":2}}}}`, false},
		"pod's topology":  {`{"requests":{"gpu/gpu-generate-topology":1},"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":2}}}}`, true},
		"named groups":    {`{"runningcontainer":{"main":{"requests":{"resource/group/gpugrp0/x/gpu/0/cards":1,"resource/group/gpugrp0/x/gpu/1/cards":1}}}}`, true},
		"slices":          {`{"runningcontainer":{"main":{"requests":{"nvidia.com/mig-1g.10gb":2}}}}`, true},
		"named slices":    {`{"runningcontainer":{"main":{"requests":{"resource/group/gpu/0/mig/0/mig-1g.10gb":1,"resource/group/gpu/0/mig/1/mig-1g.10gb":1}}}}`, true},
		"replicas":        {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu.shared":2}}}}`, true},
		"packed":          {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu.shared":2,"gpu/replicas-pack":1}}}}`, true},
		"pod's packed":    {`{"requests":{"gpu/replicas-pack":1},"runningcontainer":{"main":{"requests":{"nvidia.com/gpu.shared":2}}}}`, true},
		"same GPU":        {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu.shared":4,"gpu/replicas-same-gpu":1}}}}`, true},
		"another GPU":     {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu.shared":4,"gpu/replicas-same-gpu":0}}}}`, false},
		"renamed":         {`{"runningcontainer":{"main":{"requests":{"nvidia.com/a100":2}}}}`, true},
		"unknown kind":    {`{"runningcontainer":{"main":{"requests":{"nvidia.com/h100":1}}}}`, false},
		"misspelt":        {`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1,"gpu/generate-topology":1}}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, schedule.Scheduler{}) // one for each: names are remembered
			r.cache.setNode(node)
			req, err := requestOf(parsePod(t, "p", "", "", "main\nannotation "+test.pod))
			if err != nil {
				t.Fatal(err)
			}
			if v := r.cache.judge("a", r.cache.host.Node("a"), req,
				r.cache.host.Ask(req.pod, nil)); v.fits() != test.fits {
				t.Errorf("fits: %v; %v", v.fits(), v.reasons)
			}
		})
	}
}
