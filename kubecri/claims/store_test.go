package claims

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	listers "github.com/kubeslot/kubeslot/types/client/listers/akri/v0"
)

// The slots of an Instance's name are those that the scheduler gives, which
// follows the Configuration that owns its name.
func TestTheOwnersInstanceComesFirst(t *testing.T) {
	at := func(namespace string, seconds int64, change func(*akriv0.Configuration)) *akriv0.Configuration {
		c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cam", CreationTimestamp: metav1.Unix(seconds, 0)}}
		if change != nil {
			change(c)
		}
		return c
	}
	going := func(c *akriv0.Configuration) { c.DeletionTimestamp = &metav1.Time{} }
	for name, tc := range map[string]struct {
		configurations []*akriv0.Configuration
		want           []string
	}{
		"the oldest":                    {[]*akriv0.Configuration{at("a", 2, nil), at("b", 1, nil)}, []string{"b", "a"}},
		"not one that is being deleted": {[]*akriv0.Configuration{at("a", 1, going), at("b", 2, nil)}, []string{"b", "a"}},
		"not one that is gone":          {[]*akriv0.Configuration{at("b", 2, nil)}, []string{"b", "a"}},
		"none":                          {nil, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			for _, c := range tc.configurations {
				if err := indexer.Add(c); err != nil {
					t.Fatal(err)
				}
			}
			s := &store{configurations: listers.NewConfigurationLister(indexer)}
			var found []*akriv0.Instance
			for _, namespace := range []string{"b", "a"} {
				in := cam("cam-a1", 1, nil)
				in.Namespace = namespace
				found = append(found, in)
			}
			var got []string
			for _, in := range s.ranked(found) {
				got = append(got, in.Namespace)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("order %q, want %q", got, tc.want)
			}
		})
	}
}
