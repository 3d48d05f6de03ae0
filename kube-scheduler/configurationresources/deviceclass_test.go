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

// draManager has upstream's own cache of DeviceClasses.
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
			r.handle.dra, r.handle.recorder = draManager{classes: classes}, recorder{events: &seen}
			device(r.cache, "cam-000001", nil, "node-a")
			p := asks("p", name, "1")
			classes.OnAdd(deviceClass("other", "example.com/gpu"), false)
			state := r.fits(p, "node-a")
			class := deviceClass("cameras", "akri.sh/"+name)
			classes.OnAdd(class, false)
			wantStatus(t, "made between PreFilter and Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.UnschedulableAndUnresolvable)
			if r.cache.Holds("p-uid") {
				t.Error("the refused pod holds a slot")
			}
			_, status := r.filter(p, "node-a")
			wantStatus(t, "PreFilter", status, fwk.UnschedulableAndUnresolvable, "akri.sh/"+name+" is", "DeviceClass cameras", "change that name")
			if len(seen) == 0 || !strings.HasPrefix(seen[0], "Configuration default/cam ResourceNameTaken: akri.sh/"+name) {
				t.Errorf("events: %v", seen)
			}
			classes.OnDelete(class)
			r.fits(p, "node-a")
		})
	}
}
