package informers

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
)

// sliceWatcher lists and watches the node's DeviceSlices: by its name while there is none
// but the first, and by spec.nodeName while there are more. Safe for concurrent use.
//
// The node alone writes its slices and says which it has made. One that somebody else makes in
// its name beside the first is seen when the watch by name has ended, which client-go has it
// do within ten minutes: then slices are listed again.
type sliceWatcher struct {
	client typed.DeviceSliceInterface
	node   string
	first  string // name of the first slice

	mu sync.Mutex
	// more is whether there are others than the first.
	more bool
	// byName is the last watch of the first one since slices were listed.
	byName watch.Interface
}

func newSliceWatcher(client versioned.Interface, node string) *sliceWatcher {
	return &sliceWatcher{client: client.KubeslotV1alpha1().DeviceSlices(), node: node, first: deviceslices.Name(node, 0)}
}

func (s *sliceWatcher) listWatch() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
}

func (s *sliceWatcher) here() fields.Selector {
	return fields.OneTermEqualSelector("spec.nodeName", s.node)
}

func (s *sliceWatcher) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.FieldSelector = s.here().String()
	list, err := s.client.List(ctx, options)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.byName = nil
	s.mu.Unlock()
	for i := range list.Items {
		s.exists(list.Items[i].Name)
	}
	return list, nil
}

// watch watches from a version on, so that nothing is missed when one watch follows another.
func (s *sliceWatcher) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	more, again := s.more, s.byName != nil
	s.mu.Unlock()
	if again && !more {
		return nil, apierrors.NewResourceExpired("the node's DeviceSlices are listed again")
	}
	options.FieldSelector = s.here().String()
	if more {
		return s.client.Watch(ctx, options)
	}
	options.FieldSelector = fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, s.first), s.here()).String()
	byName, err := s.client.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName = byName
	if s.more { // since a moment
		byName.Stop()
	}
	return byName, nil
}

// exists is to be called for each slice that there is. With the first other one the watch by name
// ends, and its reflector begins the next.
func (s *sliceWatcher) exists(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == s.first || s.more {
		return
	}
	s.more = true
	if s.byName != nil {
		s.byName.Stop()
		s.byName = nil
	}
}
