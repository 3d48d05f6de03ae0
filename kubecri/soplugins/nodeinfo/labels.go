package nodeinfo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxLabels bounds the labels that the plugins of a node have on it: NVIDIA's GPU feature
// discovery has about 25. The policy kubeslot-kubecri-node refuses more.
const MaxLabels = 32

// labelPrefixes are those of the labels that plugins may have on a Node; the policy has them too.
var labelPrefixes = []string{"gpu.kubeslot.io/", "nvidia.com/"}

// CheckLabels says what is wrong with the labels that a plugin wants on its Node: the API server
// would refuse them, and all that is written with them.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%w: it wants %d labels on the Node, of %d that there may be", ErrInvalid, len(labels), MaxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !slices.ContainsFunc(labelPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			return fmt.Errorf("%w: it wants the label %q on the Node: only those of %s are for plugins",
				ErrInvalid, key, strings.Join(labelPrefixes, " and "))
		}
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("%w: it wants the label %q on the Node: %s", ErrInvalid, key, strings.Join(problems, "; "))
		}
		if problems := validation.IsValidLabelValue(labels[key]); len(problems) > 0 {
			return fmt.Errorf("%w: it wants the label %s=%q on the Node: %s",
				ErrInvalid, key, labels[key], strings.Join(problems, "; "))
		}
	}
	return nil
}
