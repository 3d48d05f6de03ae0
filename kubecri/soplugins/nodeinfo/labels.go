package nodeinfo

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/types/contain"
)

// MaxLabels bounds the labels that the plugins of a node have on it: NVIDIA's GPU feature
// discovery has about 25. The policy kubeslot-kubecri-node refuses more, and other prefixes.
const MaxLabels = 32

// CheckLabels says what is wrong with the labels that a plugin wants on its Node: the API server
// would refuse them, and all that is written with them.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%w: it wants %d labels on the Node, of %d that there may be",
			contain.ErrInvalid, len(labels), MaxLabels)
	}
	for key, value := range labels {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if !strings.HasPrefix(key, "gpu.kubeslot.io/") && !strings.HasPrefix(key, "nvidia.com/") {
			problems = append(problems, "a plugin may have labels of gpu.kubeslot.io/ and nvidia.com/ alone")
		}
		if len(problems) > 0 {
			return fmt.Errorf("%w: it wants the label %s=%q on the Node: %s",
				contain.ErrInvalid, key, value, strings.Join(problems, "; "))
		}
	}
	return nil
}
