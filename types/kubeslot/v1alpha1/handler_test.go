package v1alpha1

import (
	"slices"
	"testing"
)

func TestWithoutHandler(t *testing.T) {
	cam := ConfigurationReference{Namespace: "default", Name: "cam"}
	slice := func(node string, of ...ConfigurationReference) *DeviceSlice {
		s := &DeviceSlice{Spec: DeviceSliceSpec{NodeName: node}}
		for i := range of {
			s.Spec.Problems = append(s.Spec.Problems, Problem{Configuration: &of[i], Reason: UnknownHandler})
		}
		return s
	}
	for name, tc := range map[string]struct {
		all     []*DeviceSlice
		onEach  bool
		nodes   []string
		problem bool
	}{
		"no node reports":         {},
		"all have it":             {all: []*DeviceSlice{slice("a"), slice("b")}},
		"none has it":             {all: []*DeviceSlice{slice("b", cam), slice("a", cam)}, nodes: []string{"a", "b"}, problem: true},
		"one has it":              {all: []*DeviceSlice{slice("a"), slice("b", cam), slice("b")}, nodes: []string{"b"}},
		"one that is to have it":  {all: []*DeviceSlice{slice("a"), slice("b", cam)}, onEach: true, nodes: []string{"b"}, problem: true},
		"another's of the name":   {all: []*DeviceSlice{slice("a", ConfigurationReference{Namespace: "other", Name: "cam"})}},
		"all that are to have it": {all: []*DeviceSlice{slice("a"), slice("b")}, onEach: true},
	} {
		if nodes, problem := WithoutHandler(slices.Values(tc.all), cam, tc.onEach); !slices.Equal(nodes, tc.nodes) || problem != tc.problem {
			t.Errorf("%s: %v, a problem: %v; want %v, %v", name, nodes, problem, tc.nodes, tc.problem)
		}
	}
}
