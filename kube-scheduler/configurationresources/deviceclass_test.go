package configurationresources

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// draHandle has upstream's own cache of DeviceClasses.
type draHandle struct {
	fakeHandle
	classes *extendedresourcecache.ExtendedResourceCache
	events  *[]string
}

func (h draHandle) SharedDRAManager() fwk.SharedDRAManager    { return draManager{classes: h.classes} }
func (h draHandle) EventRecorder() events.EventRecorderLogger { return recorder{events: h.events} }

type draManager struct {
	fwk.SharedDRAManager
	classes *extendedresourcecache.ExtendedResourceCache
}

func (m draManager) DeviceClassResolver() fwk.DeviceClassResolver { return m.classes }

type recorder struct {
	events.EventRecorderLogger
	events *[]string
}

func (r recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	ref := regarding.(*v1.ObjectReference)
	*r.events = append(*r.events, fmt.Sprintf("%s %s/%s %s: ", ref.Kind, ref.Namespace, ref.Name, reason)+fmt.Sprintf(note, args...))
}

func deviceClass(name, extended string) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	return c
}

// A DeviceClass of the same name: the pod gets neither, and is told why.
func TestDeviceClassOfTheSameName(t *testing.T) {
	for _, name := range []string{"cam", "cam-000001"} {
		t.Run(name, func(t *testing.T) {
			r, seen := newRig(t), []string{}
			classes := extendedresourcecache.NewExtendedResourceCache(klog.Background())
			r.use(draHandle{fakeHandle: fakeHandle{client: r.client}, classes: classes, events: &seen})
			device(r.cache, "cam-000001", nil, "node-a")
			p := pod("p", "1")
			amount := p.Spec.Containers[0].Resources.Requests["akri.sh/cam"]
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceName("akri.sh/" + name): amount}}
			classes.OnAdd(deviceClass("other", "example.com/gpu"), false)
			state, status := r.filter(p, "node-a")
			if !status.IsSuccess() {
				t.Fatalf("another name: %v", status)
			}
			class := deviceClass("cameras", "akri.sh/"+name)
			classes.OnAdd(class, false)
			if status := r.Reserve(r.ctx, state, p, "node-a"); status.Code() != fwk.UnschedulableAndUnresolvable || r.cache.Holds("p-uid") {
				t.Errorf("made between PreFilter and Reserve: %v", status)
			}
			_, status = r.filter(p, "node-a")
			for _, part := range []string{"akri.sh/" + name + " is", "DeviceClass cameras", "change that name"} {
				if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), part) {
					t.Errorf("status %v lacks %q", status, part)
				}
			}
			if len(seen) == 0 || !strings.HasPrefix(seen[0], "Configuration default/cam ResourceNameTaken: akri.sh/"+name) {
				t.Errorf("events: %v", seen)
			}
			classes.OnDelete(class)
			if _, status := r.filter(p, "node-a"); !status.IsSuccess() {
				t.Errorf("deleted: %v", status)
			}
		})
	}
	t.Run("with the feature off", func(t *testing.T) {
		r := newRig(t)
		r.use(draHandle{fakeHandle: fakeHandle{client: r.client}})
		device(r.cache, "cam-000001", nil, "node-a")
		if _, status := r.filter(pod("p", "1"), "node-a"); !status.IsSuccess() {
			t.Error(status)
		}
	})
}

func TestRequeuedWhenADeviceClassGivesUpTheName(t *testing.T) {
	ours, free := deviceClass("c", "akri.sh/cam"), deviceClass("c", "")
	for name, test := range map[string]struct {
		before, now any
		want        fwk.QueueingHint
	}{
		"deleted":      {ours, nil, fwk.Queue},
		"renamed":      {ours, deviceClass("c", "akri.sh/mic"), fwk.Queue},
		"without it":   {ours, free, fwk.Queue},
		"other change": {ours, deviceClass("c", "akri.sh/cam"), fwk.QueueSkip},
		"never had it": {free, nil, fwk.QueueSkip},
		"another's":    {deviceClass("c", "akri.sh/mic"), nil, fwk.QueueSkip},
		"takes it":     {free, ours, fwk.QueueSkip},
		"not a class":  {&v1.Pod{}, nil, fwk.Queue},
	} {
		if got, _ := afterDeviceClassChange(klog.Background(), pod("p", "1"), test.before, test.now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
