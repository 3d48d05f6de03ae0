package sysfs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

func TestPathsInOrder(t *testing.T) {
	want := []string{
		"/devices/a", "/devices/a/b", "/devices/a/b/c", "/devices/a1", "/devices/a1/z", "/devices/a01",
		"/devices/a01/b", "/devices/a2", "/devices/a10", "/devices/a10/a", "/devices/a-1", "/devices/ab",
	}
	// "-" is before digits.
	slices.SortFunc(want, sysfs.ComparePaths)
	for i, a := range want {
		for j, b := range want {
			if got := sysfs.ComparePaths(a, b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("sysfs.ComparePaths(%s, %s) = %d though they are sorted at %d and %d", a, b, got, i, j)
			}
		}
		// All below a come right after it.
		after := false
		for _, b := range want[i+1:] {
			below := strings.HasPrefix(b, a+"/")
			if below && after {
				t.Errorf("%s is not right after %s: %v", b, a, want)
			}
			after = after || !below
		}
	}
	if sysfs.ComparePaths("/devices/video2", "/devices/video10") >= 0 {
		t.Error("video10 comes before video2")
	}
}
