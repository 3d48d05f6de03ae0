package informers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// What handlers hear of a pod that changed, was made again under its name while the watch was
// interrupted, or has ended.
func TestHandlers(t *testing.T) {
	pod := func(uid string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: types.UID(uid)},
			Status: corev1.PodStatus{Phase: phase}}
	}
	running, again, ended := pod("1", corev1.PodRunning), pod("2", corev1.PodRunning), pod("1", corev1.PodFailed)
	for name, tc := range map[string]struct {
		happens func(cache.ResourceEventHandler)
		each    []string
		over    []string
	}{
		"new":     {func(h cache.ResourceEventHandler) { h.OnAdd(running, false) }, []string{"1"}, nil},
		"changed": {func(h cache.ResourceEventHandler) { h.OnUpdate(running, running) }, []string{"1"}, nil},
		"made again": {func(h cache.ResourceEventHandler) { h.OnUpdate(running, again) },
			[]string{"1 gone", "2"}, []string{"1"}},
		"ended": {func(h cache.ResourceEventHandler) { h.OnUpdate(running, ended) }, []string{"1"}, []string{"1"}},
		"gone":  {func(h cache.ResourceEventHandler) { h.OnDelete(running) }, []string{"1 gone"}, []string{"1"}},
		"gone unseen": {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: running}) },
			[]string{"1 gone"}, []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var each, over []string
			tc.happens(Each(func(p *corev1.Pod, gone bool) {
				if gone {
					p = pod(string(p.UID)+" gone", "")
				}
				each = append(each, string(p.UID))
			}))
			tc.happens(EachPodOver(func(p *corev1.Pod) { over = append(over, string(p.UID)) }))
			if !slices.Equal(each, tc.each) || !slices.Equal(over, tc.over) {
				t.Errorf("Each heard %q, EachPodOver %q; want %q, %q", each, over, tc.each, tc.over)
			}
		})
	}
}
