package ledger

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// TestFitIsComplete compares Fit with an exhaustive search: it finds slots for
// containers of one Configuration exactly when there are any, also where some
// ask for one of its Instances by name.
func TestFitIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy")
		l := New()
		l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns"}})
		free := rapid.SliceOfN(rapid.IntRange(1, 3), 1, 4).Draw(t, "free slots")
		for i, n := range free {
			in := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c-", i), Namespace: "ns"}}
			in.Spec = akriv0.InstanceSpec{ConfigurationName: "c", Capacity: int32(n), Nodes: []string{"a"}}
			l.SetInstance(in)
		}
		needs := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 4).Draw(t, "needs")
		req := &Request{}
		named := make([]int, len(needs)) // the Instance that a container has by name, or -1
		for i, n := range needs {
			c := ContainerRequest{Name: fmt.Sprint(i), Resources: []ResourceRequest{{Name: "c", Count: n}}}
			if named[i] = rapid.IntRange(-1, len(free)-1).Draw(t, "named"); named[i] >= 0 {
				c.Resources = append(c.Resources, ResourceRequest{Name: fmt.Sprint("c-", named[i]), Count: 1})
			}
			req.Containers = append(req.Containers, c)
		}
		_, shortfall := l.Draft(strategy).Fit("a", req)
		want := true
		for _, i := range named {
			if i >= 0 {
				free[i]--
				want = want && free[i] >= 0
			}
		}
		if got, want := shortfall == nil, want && solvable(free, needs, named, 0, 0); got != want {
			t.Fatalf("fits: %v, want %v", got, want)
		}
	})
}

// solvable tries every way to give needs[0] different Instances, from the
// given one on, and so on for the other containers.
func solvable(free, needs, named []int, from, got int) bool {
	if len(needs) == 0 {
		return true
	}
	if got == needs[0] {
		return solvable(free, needs[1:], named[1:], 0, 0)
	}
	for i := from; i < len(free); i++ {
		if free[i] == 0 || i == named[0] {
			continue
		}
		free[i]--
		ok := solvable(free, needs, named, i+1, got+1)
		free[i]++
		if ok {
			return true
		}
	}
	return false
}
