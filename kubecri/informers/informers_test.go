package informers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func slice(name, node string) *v1alpha1.DeviceSlice {
	return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node}}
}

// asked are the lists and watches of a resource, as "watch spec.nodeName=node-a", in order.
func asked(client interface{ Actions() []clienttesting.Action }, resource string) (all []string) {
	for _, action := range client.Actions() {
		if action.GetResource().Resource != resource {
			continue
		}
		switch action := action.(type) {
		case clienttesting.ListActionImpl:
			all = append(all, "list "+action.ListRestrictions.Fields.String())
		case clienttesting.WatchActionImpl:
			all = append(all, "watch "+action.WatchRestrictions.Fields.String())
		}
	}
	return all
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: asked %q, want %q", what, got, want)
	}
}

const byName = "watch metadata.name=node-a-0,spec.nodeName=node-a"

// A node is told of its own objects alone, and of its only slice by name.
func TestANodeWatchesItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube, client := kubefake.NewClientset(), fake.NewSimpleClientset(slice("node-a-0", "node-a"))
		i := New(kube, client, "node-a")
		stop := make(chan struct{})
		i.Start(stop)
		synctest.Wait()
		want(t, "pods", asked(kube, "pods"), "list spec.nodeName=node-a", "watch spec.nodeName=node-a")
		want(t, "nodes", asked(kube, "nodes"), "list metadata.name=node-a", "watch metadata.name=node-a")
		want(t, "claims", asked(client, "slotclaims"), "list spec.nodeName=node-a", "watch spec.nodeName=node-a")
		want(t, "Configurations", asked(client, "configurations"), "list ", "watch ")
		want(t, "slices", asked(client, "deviceslices"), "list spec.nodeName=node-a", byName)
		close(stop)
		i.Shutdown()
	})
}

// When a node makes a second slice, it watches all of its own from then on.
func TestASecondSliceIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(slice("node-a-0", "node-a"))
		i := New(kubefake.NewClientset(), client, "node-a")
		stop := make(chan struct{})
		i.Start(stop)
		time.Sleep(time.Minute) // a watch of less than a second is an error to client-go
		i.SliceWritten("node-a-0")
		synctest.Wait()
		want(t, "with the first", asked(client, "deviceslices"), "list spec.nodeName=node-a", byName)
		i.SliceWritten("node-a-1")
		synctest.Wait()
		want(t, "with the second", asked(client, "deviceslices"), "list spec.nodeName=node-a", byName, "watch spec.nodeName=node-a")
		if _, err := client.KubeslotV1alpha1().DeviceSlices().Create(t.Context(), slice("node-a-1", "node-a"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := i.Slices.Lister().Get("node-a-1"); err != nil {
			t.Errorf("the cache has not the second slice: %v", err)
		}
		close(stop)
		i.Shutdown()
	})
}

// A node that has several slices when kubecri starts watches all of its own at once.
func TestSeveralSlicesAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(slice("node-a-0", "node-a"), slice("node-a-7", "node-a"))
		i := New(kubefake.NewClientset(), client, "node-a")
		stop := make(chan struct{})
		i.Start(stop)
		synctest.Wait()
		want(t, "slices", asked(client, "deviceslices"), "list spec.nodeName=node-a", "watch spec.nodeName=node-a")
		close(stop)
		i.Shutdown()
	})
}

// A slice that somebody else makes beside the first is seen when the watch of the first has
// timed out.
func TestASliceOfSomebodyElseIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(slice("node-a-0", "node-a"))
		client.PrependWatchReactor("deviceslices", func(action clienttesting.Action) (bool, watch.Interface, error) {
			if !strings.Contains(action.(clienttesting.WatchActionImpl).WatchRestrictions.Fields.String(), "metadata.name") {
				return false, nil, nil
			}
			named := watch.NewFake() // the fake API server knows no selectors
			time.AfterFunc(5*time.Minute, named.Stop)
			return true, named, nil
		})
		i := New(kubefake.NewClientset(), client, "node-a")
		stop := make(chan struct{})
		i.Start(stop)
		time.Sleep(time.Minute)
		if _, err := client.KubeslotV1alpha1().DeviceSlices().Create(t.Context(), slice("node-a-77", "node-a"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if _, err := i.Slices.Lister().Get("node-a-77"); err != nil {
			t.Errorf("the cache has not the other slice: %v", err)
		}
		want(t, "slices", asked(client, "deviceslices"), "list spec.nodeName=node-a", byName, "list spec.nodeName=node-a", "watch spec.nodeName=node-a")
		close(stop)
		i.Shutdown()
	})
}

// The second slice may be made while the watch by name is only being opened.
func TestASecondSliceWhileTheWatchBegins(t *testing.T) {
	s := newSliceWatcher(fake.NewSimpleClientset(), "node-a")
	opened := watch.NewFake()
	s.client = openingWatch{s.client, func() watch.Interface {
		s.exists("node-a-1")
		return opened
	}}
	if _, err := s.watch(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if !opened.IsStopped() {
		t.Error("the watch of the first slice goes on, and the second is not watched")
	}
}

// The first question takes what the API server's cache has; those after an error are
// client-go's.
func TestStreamedBeginsWithTheCache(t *testing.T) {
	var versions []string
	from := streamed(&cache.ListWatch{WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
		versions = append(versions, options.ResourceVersion)
		return watch.NewFake(), nil
	}}, nil)
	initial := true
	for _, options := range []metav1.ListOptions{
		{SendInitialEvents: &initial}, {SendInitialEvents: &initial}, {ResourceVersion: "17"}, {SendInitialEvents: &initial, ResourceVersion: "17"},
	} {
		if _, err := cache.ToListerWatcherWithContext(from).WatchWithContext(t.Context(), options); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(versions, []string{"0", "", "17", "17"}) {
		t.Errorf("asked for versions %q", versions)
	}
}

// openingWatch is a client whose watches are those of open.
type openingWatch struct {
	typed.DeviceSliceInterface
	open func() watch.Interface
}

func (o openingWatch) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return o.open(), nil
}
