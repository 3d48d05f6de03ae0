package assignment

import (
	"fmt"

	"github.com/kubeslot/kubeslot/types/spelling"
)

// Misspelt returns the key that was probably meant to be Annotation, of a pod that does not
// have Annotation itself: the pod would run without what it asks for. It is empty for all
// other pods. Of several such keys it returns the first in the alphabet. A key of another
// length costs next to nothing, one of about the same length a microsecond.
func Misspelt(annotations map[string]string) string {
	if _, ok := annotations[Annotation]; ok {
		return ""
	}
	first := ""
	for key := range annotations {
		if (first == "" || key < first) && spelling.Nearest(key, meant) != "" {
			first = key
		}
	}
	return first
}

var meant = []string{Annotation}

func checkMisspelt(annotations map[string]string) error {
	key := Misspelt(annotations)
	if key == "" {
		return nil
	}
	return fmt.Errorf("unknown annotation key %q: rename or remove it%s", key, spelling.DidYouMean(key, meant))
}
