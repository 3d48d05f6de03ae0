package view

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// ofResourceClaim has the first claim be of a ResourceClaim of the namespace shop, of which none is among the objects;
// those are of a namespace, or of all for "".
func ofResourceClaim(o *Objects, of string) {
	o.Claims[0].Spec.Pod, o.Claims[0].Spec.Holder = nil, v1alpha1.DRAHolder("u", nil)
	o.Claims[0].Spec.ResourceClaim = &v1alpha1.ResourceClaimReference{Namespace: "shop", Name: "c", UID: "u"}
	o.ResourceClaims, o.ResourceClaimsOf = []resourceapi.ResourceClaim{}, of
}

// A slot whose pod is gone waits for its node if that is not Ready, and doctor says what releases it.
func TestSlotsOfUnreachableNodes(t *testing.T) {
	const taint, deleted, release = "kubectl taint node a node.kubernetes.io/out-of-service=off:NoExecute", "kubectl delete node a", "kubectl kubeslot release "
	for name, tc := range map[string]struct {
		change  func(o *Objects)
		want    []string // in the finding; none is for no finding
		wantNot []string
	}{
		"the node is not Ready": {want: []string{"its pod default/dead is gone", "node a", "has not been Ready since 2026-11-22T11:00:00Z", taint, deleted, release + yard + "-0"},
			wantNot: []string{"releaseUnreachableAfter"}},
		"the node is Ready": {change: func(o *Objects) { o.Nodes[0].Status = ready(true) }},
		"the node is gone":  {change: func(o *Objects) { o.Nodes = o.Nodes[1:] }},
		"the node is another": {change: func(o *Objects) {
			o.Nodes[0].UID = "new"
			o.Claims[0].OwnerReferences = []metav1.OwnerReference{v1alpha1.NodeOwner("a", "old")}
		}},
		"the pod is there": {change: func(o *Objects) {
			p := pod("dead", "cam", 1)
			p.Spec.NodeName = "a"
			o.Pods = []corev1.Pod{p}
		}},
		"the pod has ended": {want: []string{"its pod default/dead has ended", release}, change: func(o *Objects) {
			p := pod("dead", "cam", 1)
			p.Spec.NodeName, p.Status.Phase = "a", corev1.PodSucceeded
			o.Pods = []corev1.Pod{p}
		}},
		"the claim is new":        {change: func(o *Objects) { o.Claims[0].CreationTimestamp = metav1.NewTime(now) }},
		"the claim names no pod":  {want: []string{"no pod is named in its claim, and node a", taint, deleted, release}, change: func(o *Objects) { o.Claims[0].Spec.Pod = nil }},
		"pods of one namespace":   {change: func(o *Objects) { o.PodsOf = "default" }},
		"nodes may not be listed": {change: func(o *Objects) { o.Nodes = nil }},
		"no pod uses its ResourceClaim": {want: []string{"no pod uses its ResourceClaim shop/c"},
			change: func(o *Objects) { ofResourceClaim(o, "") }},
		"it may be used by pods of another namespace": {change: func(o *Objects) { ofResourceClaim(o, "default") }},
		"the Configuration says after what time": {want: []string{taint, release, "the controller releases it when kubecri there was not heard of for 1h30m (releaseUnreachableAfter)"},
			change: func(o *Objects) {
				o.Claims[0].Spec.ReleaseUnreachableAfter = &metav1.Duration{Duration: 90 * time.Minute}
			}},
		"the node has the taint": {want: []string{"The node has the taint", "look whether it runs"}, wantNot: []string{release},
			change: func(o *Objects) { o.Nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}} }},
		"the node made the claim again since": {want: []string{deleted, release}, wantNot: []string{taint},
			change: func(o *Objects) {
				o.Nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
				o.Claims[0].Spec.MadeAgain = true
			}},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster()
			o.Nodes[0].Status = ready(false)
			o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "dead")}
			if tc.change != nil {
				tc.change(&o)
			}
			v := New(o)
			got := unreachable(v)
			if len(tc.want) == 0 {
				if len(got) != 0 {
					t.Errorf("examineUnreachable() = %+v, want none", got)
				}
				return
			}
			if len(got) != 1 || got[0].Object != "slotclaim/"+yard+"-0" || got[0].Reason != "NodeUnreachable" {
				t.Fatalf("examineUnreachable() = %+v, want NodeUnreachable of the claim", got)
			}
			for _, text := range tc.want {
				if !strings.Contains(got[0].Problem, text) {
					t.Errorf("it says %q, want %q in it", got[0].Problem, text)
				}
			}
			for _, text := range tc.wantNot {
				if strings.Contains(got[0].Problem, text) {
					t.Errorf("it says %q, want no %q in it", got[0].Problem, text)
				}
			}
			var said []Finding
			for _, f := range v.Examine(now) {
				if f.Object == got[0].Object {
					said = append(said, f)
				}
			}
			if diff := cmp.Diff([]Finding(got), said); diff != "" {
				t.Errorf("doctor says of the claim (-want +got):\n%s", diff)
			}
			if s := v.Slots(); !s[2].Unreachable || s[2].Name != yard+"-0" || s[3].Unreachable {
				t.Errorf("the slots do not say which of them waits: %+v", s)
			}
		})
	}
}

func unreachable(v *View) (f findings) {
	v.examineUnreachable(&f, now)
	return f
}

// A pod that is being deleted on a node that is not Ready cannot go, and keeps its slots.
func TestPodsThatCannotGo(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration // that it is being deleted; 0 if it is not
		ready bool
		taint string
		want  bool
	}{
		"it cannot go":                   {since: time.Hour, want: true},
		"it is not being deleted":        {},
		"it was deleted a moment ago":    {since: time.Second},
		"the node is Ready":              {since: time.Hour, ready: true},
		"the control plane deletes it":   {since: time.Hour, taint: corev1.TaintNodeOutOfService},
		"the node has some other taints": {since: time.Hour, taint: corev1.TaintNodeUnreachable, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster()
			o.Nodes[0].Status = ready(tc.ready)
			if tc.taint != "" {
				o.Nodes[0].Spec.Taints = []corev1.Taint{{Key: tc.taint}}
			}
			p := bound(t, pod("going", "cam", 2), "a", "cam", yard+"-0", gate+"-1")
			if tc.since > 0 {
				at := metav1.NewTime(now.Add(-tc.since))
				p.DeletionTimestamp = &at
			}
			o.Pods = []corev1.Pod{p}
			o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "going"), claim(gate+"-1", "a", "going")}
			v := New(o)
			if s, want := v.Slots(), tc.since > 0 && !tc.ready; s[2].Unreachable != want {
				t.Errorf("the slot says that it waits: %v, want %v", s[2].Unreachable, want)
			}
			if on := unreachable(v); (len(on) == 1) != tc.want {
				t.Errorf("the page says %+v", on)
			}
			for _, f := range v.Examine(now) {
				if f.Reason != "NodeUnreachable" {
					continue
				}
				want := "`kubectl delete pod -n default going --force --grace-period=0` and then `kubectl kubeslot release " + gate + "-1 " + yard + "-0`"
				if !tc.want || f.Object != "pod/default/going" || !strings.Contains(f.Problem, want) {
					t.Errorf("doctor says %+v", f)
				}
				return
			}
			if tc.want {
				t.Error("doctor says nothing")
			}
		})
	}
}

// A ResourceClaim of a namespace that is not read is not gone.
func TestResourceClaimThatIsNotSeen(t *testing.T) {
	for of, gone := range map[string]bool{"": true, "shop": true, "default": false} {
		o := cluster()
		o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "")}
		ofResourceClaim(&o, of)
		if got := New(o).resourceClaimGone(&o.Claims[0]); got != gone {
			t.Errorf("ResourceClaims of namespace %q are read: shop/c is gone: %t", of, got)
		}
	}
}
