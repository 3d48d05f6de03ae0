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
