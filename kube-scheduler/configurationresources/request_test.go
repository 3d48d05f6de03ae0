package configurationresources

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
)

// resourceList reads "name=quantity" each.
func resourceList(of ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for _, one := range of {
		name, quantity, _ := strings.Cut(one, "=")
		list[v1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

func requests(name string, of ...string) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: resourceList(of...)}}
}

func limits(name string, of ...string) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: resourceList(of...)}}
}

func restarts(c v1.Container, policy v1.ContainerRestartPolicy) v1.Container {
	c.RestartPolicy = &policy
	return c
}

func both(c v1.Container, limits ...string) v1.Container {
	c.Resources.Limits = resourceList(limits...)
	return c
}

// told is what containers ask for, in a line.
func told(req *ledger.Request) string {
	var all []string
	for _, c := range req.Containers {
		one := c.Name
		switch c.Role {
		case ledger.Init:
			one += " (init)"
		case ledger.Sidecar:
			one += " (sidecar)"
		}
		for _, r := range c.Resources {
			one += fmt.Sprintf(" %s=%d", r.Name, r.Count)
		}
		all = append(all, one)
	}
	return strings.Join(all, ", ")
}

func TestRequests(t *testing.T) {
	always, never, onFailure := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure
	of := func(containers ...v1.Container) []v1.Container { return containers }
	for name, test := range map[string]struct {
		init, app []v1.Container
		want      string // "": the pod asks for no slots
	}{
		"nothing":              {app: of(requests("main", "cpu=1"))},
		"another domain":       {app: of(requests("main", "akri.sh.example.com/cam=1", "example.com/cam=1", "akri.sh=1"))},
		"in requests":          {app: of(requests("main", "akri.sh/cam=2", "cpu=1")), want: "main cam=2"},
		"in limits only":       {app: of(limits("main", "akri.sh/cam=2", "cpu=1")), want: "main cam=2"},
		"in both: counts once": {app: of(both(requests("main", "akri.sh/cam=2"), "akri.sh/cam=2")), want: "main cam=2"},
		"requests count":       {app: of(both(requests("main", "akri.sh/cam=1"), "akri.sh/cam=3")), want: "main cam=1"},
		"one in requests, another in limits": {
			app: of(both(requests("main", "akri.sh/mic=1"), "akri.sh/cam=3")), want: "main cam=3 mic=1"},
		"requests of 0 count": {app: of(both(requests("main", "akri.sh/cam=0"), "akri.sh/cam=3"))},
		"0 in requests":       {app: of(requests("main", "akri.sh/cam=0"))},
		"0 in limits":         {init: of(limits("first", "akri.sh/cam=0")), app: of(limits("main", "akri.sh/cam=0"))},
		"0 beside more": {
			app:  of(requests("none", "akri.sh/cam=0"), requests("main", "akri.sh/cam=1", "akri.sh/mic=0")),
			want: "main cam=1"},
		"ordered by name": {
			app: of(requests("main", "akri.sh/mic=1", "akri.sh/cam-8120fe=1", "akri.sh/cam=3", "akri.sh/arm=4")), want: "main arm=4 cam=3 cam-8120fe=1 mic=1"},
		"whole, in other words": {
			app: of(requests("main", "akri.sh/cam=2000m", "akri.sh/mic=1e2", "akri.sh/arm=0.2k", "akri.sh/leg=3.0")), want: "main arm=200 cam=2 leg=3 mic=100"},
		"the most there may be": {app: of(requests("main", "akri.sh/cam=1000")), want: "main cam=1000"},
		"init containers and sidecars": {
			init: of(requests("first", "akri.sh/cam=3"), restarts(limits("side", "akri.sh/cam=1"), always), requests("second", "akri.sh/mic=1")),
			app:  of(requests("main", "akri.sh/cam=2"), requests("idle")),
			want: "first (init) cam=3, side (sidecar) cam=1, second (init) mic=1, main cam=2"},
		"only a sidecar asks": {
			init: of(restarts(requests("side", "akri.sh/cam=1"), always)), app: of(requests("main")),
			want: "side (sidecar) cam=1"},
		"only an init container asks, in limits": {
			init: of(limits("first", "akri.sh/cam=1")), app: of(requests("main")), want: "first (init) cam=1"},
		// With these policies an init container ends before the next one starts.
		"init containers with other restart policies": {
			init: of(restarts(requests("first", "akri.sh/cam=1"), never), restarts(requests("second", "akri.sh/cam=1"), onFailure)),
			app:  of(restarts(requests("main", "akri.sh/cam=1"), always)),
			want: "first (init) cam=1, second (init) cam=1, main cam=1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "1")
			p.Spec.InitContainers, p.Spec.Containers = test.init, test.app
			req, err := slotrequest.Of(p)
			if err != nil {
				t.Fatal(err)
			}
			if req == nil {
				req = &ledger.Request{Pod: slotrequest.PodOf(p)}
			}
			if got := told(req); got != test.want || req.Pod != slotrequest.PodOf(p) {
				t.Errorf("pod %+v asks for %q, want %q", req.Pod, got, test.want)
			}
		})
	}
}

// A request that nobody could meet is refused by what is wrong with it.
func TestMalformedRequests(t *testing.T) {
	for name, test := range map[string]struct {
		quantity, shown string
	}{
		"negative":           {"-1", "-1"},
		"negative fraction":  {"-500m", "-500m"},
		"fraction":           {"1.5", "1500m"},
		"less than one":      {"1n", "1n"},
		"one too many":       {"1001", "1001"},
		"thousands":          {"2k", "requests 2000 of"},
		"beyond 64 bits":     {"1e30", "1e30"},
		"as much below zero": {"-1e30", "-1e30"},
	} {
		for where, c := range map[string]v1.Container{
			"requests": requests("bad", "akri.sh/cam="+test.quantity),
			"limits":   limits("bad", "akri.sh/cam="+test.quantity),
		} {
			for _, init := range []bool{false, true} {
				p := pod("p", "1")
				if init {
					p.Spec.InitContainers = []v1.Container{c}
				} else {
					p.Spec.Containers = append(p.Spec.Containers, c)
				}
				req, err := slotrequest.Of(p)
				if err == nil {
					t.Errorf("%s in %s, init %v: asks for %+v", name, where, init, req)
					continue
				}
				for _, part := range []string{`"bad"`, test.shown, "akri.sh/cam", "whole number from 0 to 1000"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s in %s, init %v: error %q lacks %q", name, where, init, err, part)
					}
				}
			}
		}
	}
}
