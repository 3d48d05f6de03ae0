// Package nodeinfo checks what a device plugin says of its node before it is written there.
package nodeinfo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/contain"
)

// maxBytes bounds the names in what one plugin says of the node, of the 256 KiB
// that all its annotations may take. Eight GPUs with two levels above them take 4.
const maxBytes = 64 << 10

// Check returns what may be written to the node of what a plugin said, which it changes:
// all of it but Used, which is the scheduler's. Anything else would keep the node's slots
// from being advertised as well.
func Check(info *types.NodeInfo) (*types.NodeInfo, error) {
	info.Used = types.ResourceList{}
	bytes := 0
	for _, name := range slices.Sorted(maps.Keys(info.Scorer)) {
		bytes += len(name)
		if err := checkResource(name, 0); err != nil {
			return nil, err
		}
	}
	for _, list := range []types.ResourceList{info.Capacity, info.Allocatable, info.KubeCap, info.KubeAlloc} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			bytes += len(name)
			if err := checkResource(name, list[name]); err != nil {
				return nil, err
			}
		}
	}
	if bytes > maxBytes {
		return nil, fmt.Errorf("%w: the names of the node's resources take %d bytes, of %d that it may have",
			contain.ErrInvalid, bytes, maxBytes)
	}
	for _, list := range []types.ResourceList{info.KubeCap, info.KubeAlloc} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !extended(string(name)) {
				return nil, fmt.Errorf("%w: its KubeCap or KubeAlloc has %q, which is not the name of an extended "+
					"resource, such as example.com/widget", contain.ErrInvalid, name)
			}
		}
	}
	return info, nil
}

func checkResource(name types.ResourceName, n int64) error {
	switch {
	case name == "" || !utf8.ValidString(string(name)):
		return fmt.Errorf("%w: %q is not a name of a resource", contain.ErrInvalid, name)
	case strings.HasPrefix(string(name), assignment.ResourcePrefix):
		return fmt.Errorf("%w: it says that the node has %q: slots come from Instances alone", contain.ErrInvalid, name)
	case n < 0:
		return fmt.Errorf("%w: it says that the node has %d of %q", contain.ErrInvalid, n, name)
	}
	return nil
}

// extended reports whether a resource is one that nodes may add, by the API
// server's rule (IsExtendedResourceName).
func extended(name string) bool {
	const quota = "requests." // the name has to be good with it, and must not begin so
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, quota) &&
		len(validation.IsQualifiedName(quota+name)) == 0
}
