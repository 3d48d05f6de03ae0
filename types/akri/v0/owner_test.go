package v0

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCompareOwners(t *testing.T) {
	at := func(namespace string, seconds int64) *Configuration {
		return &Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, CreationTimestamp: metav1.Unix(seconds, 0)}}
	}
	going := at("going", 1)
	going.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		all  []*Configuration
		want string // namespaces in order
	}{
		"the oldest":               {[]*Configuration{at("a", 3), at("b", 2), at("c", 4)}, "b a c"},
		"of one age, by namespace": {[]*Configuration{at("b", 2), at("a", 2)}, "a b"},
		"one on its way out":       {[]*Configuration{going, at("b", 2)}, "b going"},
		"one that is not there":    {[]*Configuration{nil, at("b", 2), at("a", 3)}, "b a nil"},
		"none that may":            {[]*Configuration{going, nil}, "going nil"},
	} {
		t.Run(name, func(t *testing.T) {
			slices.SortStableFunc(tc.all, CompareOwners)
			var got []string
			for _, c := range tc.all {
				if c == nil {
					got = append(got, "nil")
					continue
				}
				got = append(got, c.Namespace)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("order %q, want %q", got, tc.want)
			}
		})
	}
}
