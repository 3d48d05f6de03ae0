package claims

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	listers "github.com/kubeslot/kubeslot/types/client/listers/akri/v0"
)

// Names of our indices in the shared informer.
const (
	byName      = "kubecri/claims/name"
	claimedHere = "kubecri/claims/claimed"
)

// store reads and writes Instances. It sees its own writes before the informer
// does: a claim that was just released must not look held.
type store struct {
	client         clientset.Interface
	indexer        cache.Indexer
	configurations listers.ConfigurationLister

	mu      sync.Mutex
	written map[types.NamespacedName]*akriv0.Instance
}

// indexers find Instances by name and those that the node has claims on.
func indexers(node string) cache.Indexers {
	return cache.Indexers{
		byName: func(obj any) ([]string, error) {
			in, ok := obj.(*akriv0.Instance)
			if !ok {
				return nil, nil
			}
			return []string{in.Name}, nil
		},
		claimedHere: func(obj any) ([]string, error) {
			if in, ok := obj.(*akriv0.Instance); ok && concerns(in, node) {
				return []string{in.Name}, nil
			}
			return nil, nil
		},
	}
}

// named returns the Instances of the name as last seen, the owner of the name
// first. They are not to be changed.
func (s *store) named(name string) []*akriv0.Instance {
	objs, err := s.indexer.ByIndex(byName, name)
	if err != nil { // only for an index that does not exist
		panic(err)
	}
	found := make([]*akriv0.Instance, 0, len(objs))
	for _, obj := range objs {
		found = append(found, s.newest(obj.(*akriv0.Instance)))
	}
	return s.ranked(found)
}

// live asks the API server for the Instances of the name.
func (s *store) live(ctx context.Context, name string) ([]*akriv0.Instance, error) {
	list, err := s.client.AkriV0().Instances(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("look up Instance %s: %w", name, err)
	}
	var found []*akriv0.Instance
	for i := range list.Items {
		if list.Items[i].Name == name {
			found = append(found, &list.Items[i])
		}
	}
	return s.ranked(found), nil
}

// get asks the API server for one Instance; nil when it does not exist.
func (s *store) get(ctx context.Context, in *akriv0.Instance) (*akriv0.Instance, error) {
	got, err := s.client.AkriV0().Instances(in.Namespace).Get(ctx, in.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Instance %s/%s: %w", in.Namespace, in.Name, err)
	}
	return got, nil
}

// update writes an Instance if it is still at in's resourceVersion.
func (s *store) update(ctx context.Context, in *akriv0.Instance) error {
	got, err := s.client.AkriV0().Instances(in.Namespace).Update(ctx, in, metav1.UpdateOptions{FieldManager: "kubecri-claims"})
	if err != nil {
		return fmt.Errorf("update deviceUsage of Instance %s/%s: %w", in.Namespace, in.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[key(in)] = got
	return nil
}

// newest returns the later of the informer's copy and what we wrote.
func (s *store) newest(cached *akriv0.Instance) *akriv0.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	ours := s.written[key(cached)]
	if ours == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, ours.ResourceVersion)
	if err != nil || order >= 0 || cached.UID != ours.UID {
		delete(s.written, key(cached))
		return cached
	}
	return ours
}

// forget drops what we wrote of an Instance that was deleted.
func (s *store) forget(in *akriv0.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, key(in))
}

// ranked puts the Instance of the Configuration that owns its name first: resource
// names have no namespace, and this is whose slots the scheduler gives.
func (s *store) ranked(found []*akriv0.Instance) []*akriv0.Instance {
	if len(found) < 2 {
		return found
	}
	configuration := func(in *akriv0.Instance) *akriv0.Configuration {
		c, err := s.configurations.Configurations(in.Namespace).Get(in.Spec.ConfigurationName)
		if err != nil { // it is not in the cache
			return nil
		}
		return c
	}
	slices.SortFunc(found, func(a, b *akriv0.Instance) int {
		return cmp.Or(akriv0.CompareOwners(configuration(a), configuration(b)), cmp.Compare(a.Namespace, b.Namespace))
	})
	return found
}

func key(in *akriv0.Instance) types.NamespacedName {
	return types.NamespacedName{Namespace: in.Namespace, Name: in.Name}
}
