package deviceslices

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Whoever else wrote a slice meanwhile, it becomes what the node has to say.
func TestAConflictIsOverwritten(t *testing.T) {
	slice := func(version, id string) *v1alpha1.DeviceSlice {
		return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "node-a-0", UID: "uid", ResourceVersion: version},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: "node-a", Devices: []v1alpha1.Device{{ID: id}}}}
	}
	client := fake.NewSimpleClientset(slice("2", "somebody else's"))
	updates := 0
	client.PrependReactor("update", "deviceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		updates++
		if s := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.DeviceSlice); s.ResourceVersion != "2" {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), s.Name, errors.New("the object has been modified"))
		}
		return false, nil, nil
	})
	w := New(Config{NodeName: "node-a", Client: client})
	if err := w.put(t.Context(), change{slice: slice("1", "ours")}); err != nil {
		t.Fatal(err)
	}
	is, err := client.KubeslotV1alpha1().DeviceSlices().Get(t.Context(), "node-a-0", metav1.GetOptions{})
	if err != nil || is.Spec.Devices[0].ID != "ours" || updates != 2 {
		t.Errorf("the slice has device %q after %d updates, %v", is.Spec.Devices[0].ID, updates, err)
	}
}

// A slice whose creation was not answered is known to be there once the API server says so: whoever
// watches slices by their names has to know of it, or the cache would not show it.
func TestACreateThatWasNotAnswered(t *testing.T) {
	client := fake.NewSimpleClientset()
	client.PrependReactor("create", "deviceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s := action.(clienttesting.CreateAction).GetObject()
		if err := client.Tracker().Create(action.GetResource(), s, ""); err != nil {
			return true, nil, err
		}
		return true, nil, errors.New("connection reset by peer")
	})
	var wrote []string
	w := New(Config{NodeName: "node-a", Client: client, Wrote: func(name string) { wrote = append(wrote, name) }})
	made := change{slice: &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "node-a-1"},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: "node-a"}}}
	for range 2 {
		if err := w.put(t.Context(), made); err == nil {
			t.Error("no error, so that it is not looked at again")
		}
	}
	if !slices.Equal(wrote, []string{"node-a-1"}) {
		t.Errorf("said that it wrote %q, want the slice that there is", wrote)
	}
}
