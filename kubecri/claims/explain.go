package claims

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	listers "github.com/kubeslot/kubeslot/types/client/listers/akri/v0"
)

// Explain finds out for a person what Take would say to the request on the node,
// as far as the API server knows: it returns the Instances of the slots by name,
// and an error like Take's. Nothing is claimed.
func Explain(ctx context.Context, client clientset.Interface, node string, r Request) (map[string]*akriv0.Instance, error) {
	configurations, err := client.AkriV0().Configurations(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Configurations: %w", err)
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for i := range configurations.Items {
		if err := indexer.Add(&configurations.Items[i]); err != nil {
			return nil, err
		}
	}
	s := &store{client: client, configurations: listers.NewConfigurationLister(indexer)}

	usages, err := r.usages(node)
	if err != nil {
		return nil, err
	}
	instances := map[string]*akriv0.Instance{}
	var refusal error
	for _, name := range instancesOf(usages) {
		found, err := s.live(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			err = noInstance(name)
		} else {
			instances[name] = found[0]
			_, err = claim(found[0], node, &r)
		}
		if refusal == nil {
			refusal = err
		}
	}
	if err := r.verify(); err != nil {
		return instances, err
	}
	return instances, refusal
}
