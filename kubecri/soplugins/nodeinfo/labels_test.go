package nodeinfo

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types/contain"
)

func many(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("nvidia.com/l%d", i)] = "x"
	}
	return labels
}

func TestCheckLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string // part of the error, "" for none
	}{
		"none": {nil, ""},
		"of both prefixes": {map[string]string{"gpu.kubeslot.io/product": "A100-SXM4",
			"nvidia.com/mig.capable": "true"}, ""},
		"without a value":  {map[string]string{"gpu.kubeslot.io/product": ""}, ""},
		"as many as may":   {many(MaxLabels), ""},
		"one more":         {many(MaxLabels + 1), "it wants 33 labels on the Node, of 32 that there may be"},
		"of another":       {map[string]string{"node-role.kubernetes.io/x": ""}, `the label node-role.kubernetes.io/x=""`},
		"a longer prefix":  {map[string]string{"x.nvidia.com/gpu": "1"}, "of gpu.kubeslot.io/ and nvidia.com/ alone"},
		"of kubecri":       {map[string]string{"kubeslot.io/mode": "x"}, "of gpu.kubeslot.io/ and nvidia.com/ alone"},
		"no name":          {map[string]string{"nvidia.com/": "1"}, "name part must be non-empty"},
		"two slashes":      {map[string]string{"nvidia.com/a/b": "1"}, `the label nvidia.com/a/b="1"`},
		"a comma":          {map[string]string{"nvidia.com/a,cpu": "1"}, `the label nvidia.com/a,cpu="1"`},
		"a long value":     {map[string]string{"nvidia.com/a": strings.Repeat("x", 64)}, "nvidia.com/a="},
		"a value of words": {map[string]string{"nvidia.com/a": "NVIDIA A100"}, "nvidia.com/a="},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckLabels(tc.labels)
			switch {
			case tc.want == "" && err == nil:
			case !errors.Is(err, contain.ErrInvalid) || tc.want == "" || !strings.Contains(err.Error(), tc.want):
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
