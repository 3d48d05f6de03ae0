package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What equals the last result is not reported, but for the first.
func TestChanges(t *testing.T) {
	var got []int
	report := Changes(func(r Result) { got = append(got, len(r.Devices)) })
	one := func() Result { return Result{Devices: []Device{{ID: "a", Properties: map[string]string{"k": "v"}}}} }
	for _, r := range []Result{{}, {}, one(), one(), {Shared: true}, {}} {
		report(r)
	}
	if diff := cmp.Diff([]int{0, 1, 0, 0}, got); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
