package claims

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const claimed = "cam-8120fe-0"

// claimBy is of the pod default/p, on node-a, whose Node object had the UID.
func claimBy(podUID, nodeUID string) *v1alpha1.SlotClaim {
	c := v1alpha1.NewSlotClaim(slot.Name{Instance: "cam-8120fe", Index: 0}, v1alpha1.SlotClaimSpec{
		NodeName: "node-a", Container: "c", Level: v1alpha1.ConfigurationLevel, Holder: podUID,
		Pod: &v1alpha1.PodReference{Namespace: "default", Name: "p", UID: ktypes.UID(podUID)},
	}, v1alpha1.NodeOwner("node-a", ktypes.UID(nodeUID)))
	c.UID = "claim-uid"
	return c
}

func nodeOf(uid string, status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: ktypes.UID(uid)}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: status}}}}
}

// podOn is bound to a node, and was assigned the slot; "" for none.
func podOn(t *testing.T, uid, node, slotName string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: ktypes.UID(uid)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"akri.sh/cam": resource.MustParse("1")}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if slotName == "" {
		return pod
	}
	s, err := slot.Parse(slotName)
	if err != nil {
		t.Fatal(err)
	}
	container := types.ContainerInfo{}
	assignment.Set(&container, []assignment.Grant{{Resource: "cam", Slot: s}})
	info := &types.PodInfo{Name: "p", NodeName: node, RunningContainers: map[string]types.ContainerInfo{"c": container}}
	if pod.Annotations, err = assignment.Encode(info, uid, nil); err != nil {
		t.Fatal(err)
	}
	return pod
}

// Whatever is known of a claim: it is deleted for the reasons that there are, and else is its node's to release.
func TestJudge(t *testing.T) {
	ready, notReady, unheard := nodeOf("n1", corev1.ConditionTrue), nodeOf("n1", corev1.ConditionFalse), nodeOf("n1", corev1.ConditionUnknown)
	holds := podOn(t, "u1", "node-a", claimed)
	done := podOn(t, "u1", "node-a", claimed)
	done.Status.Phase = corev1.PodSucceeded
	failed := podOn(t, "u1", "node-a", claimed)
	failed.Status.Phase = corev1.PodFailed
	forged := podOn(t, "u1", "node-a", claimed)
	forged.Annotations[assignment.HolderAnnotation] = "u2"
	podless := claimBy("u1", "n1")
	podless.Spec.Pod = nil
	plugins, pluginsDown := nodeOf("n1", corev1.ConditionTrue), nodeOf("n1", corev1.ConditionUnknown)
	for _, node := range []*corev1.Node{plugins, pluginsDown} {
		node.Labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}
	}
	podlessBefore := claimBy("u1", "n0")
	podlessBefore.Spec.Pod = nil
	otherHolder := claimBy("u1", "n1")
	otherHolder.Spec.Holder = "u9"
	off := nodeOf("n1", corev1.ConditionUnknown)
	off.Spec.Taints = []corev1.Taint{{Key: "a"}, {Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	offButReady := nodeOf("n1", corev1.ConditionTrue)
	offButReady.Spec.Taints = off.Spec.Taints
	madeAgain, promised := claimBy("u1", "n1"), claimBy("u1", "n1")
	madeAgain.Spec.MadeAgain = true
	promised.Spec.ReleaseUnreachableAfter = &metav1.Duration{Duration: time.Minute}
	promisedPodless := promised.DeepCopy()
	promisedPodless.Spec.Pod = nil
	silent := func(d time.Duration) *time.Duration { return &d }
	broker := podOn(t, "u1", "node-a", claimed)
	broker.Labels = map[string]string{naming.Controller: naming.ControllerName}
	broker.OwnerReferences = []metav1.OwnerReference{{APIVersion: "akri.sh/v0", Kind: "Instance", Controller: ptr.To(true)}}
	stranger := broker.DeepCopy()
	stranger.OwnerReferences[0].APIVersion = "compute.example/v1"
	unowned := claimBy("u1", "n1")
	unowned.OwnerReferences = nil
	why := errors.New("why")
	nowhere := v1alpha1.ClaimFacts{Capacity: 1}.Why() // no node gives the slot
	beyond := v1alpha1.ClaimFacts{Index: 1, Capacity: 1, Listed: true, Given: true}.Why()
	for name, tc := range map[string]struct {
		facts
		reason string
	}{
		"in use": {facts{claimBy("u1", "n1"), ready, holds, nil, unknown, nil, false},
			""},
		"in use, node not Ready": {facts{claimBy("u1", "n1"), notReady, holds, nil, unknown, nil,
			false}, ""},
		"taken before the Binding": {facts{claimBy("u1", "n1"), ready, podOn(t, "u1", "", ""), nil,
			unknown, nil, false}, ""},
		"pod gone, node Ready: the node's affair": {facts{claimBy("u1", "n1"), ready, nil, nil, unknown, nil, false},
			""},
		"pod done, node Ready: the node's affair": {facts{claimBy("u1", "n1"), ready, done, nil, unknown, nil, false},
			""},
		"pod not known, node not Ready": {facts{podless, notReady, nil, nil, unknown, nil, false}, ""},
		"without an owner":              {facts{unowned, ready, nil, nil, unknown, nil, false}, ""},

		// Ready is the kubelet's word: containers may run, and kubecri see them.
		"pod gone, node not Ready":  {facts{claimBy("u1", "n1"), notReady, nil, nil, unknown, nil, false}, ""},
		"pod gone, node not heard":  {facts{claimBy("u1", "n1"), unheard, nil, nil, unknown, nil, false}, ""},
		"pod gone, out of service":  {facts{claimBy("u1", "n1"), off, nil, nil, unknown, nil, false}, outOfService},
		"pod done, out of service":  {facts{claimBy("u1", "n1"), off, done, nil, unknown, nil, false}, outOfService},
		"podless, out of service":   {facts{podless, off, nil, nil, unknown, nil, false}, outOfService},
		"in use, out of service":    {facts{claimBy("u1", "n1"), off, holds, nil, unknown, nil, false}, ""},
		"out of service, but Ready": {facts{claimBy("u1", "n1"), offButReady, nil, nil, unknown, nil, false}, ""},
		"podless, that too":         {facts{podless, offButReady, nil, nil, unknown, nil, false}, ""},
		"made again: the node runs": {facts{madeAgain, off, nil, nil, unknown, nil, false}, ""},
		"made again, node gone":     {facts{madeAgain, nil, nil, nil, unknown, nil, false}, nodeGone},

		"silent for less": {facts{promised, unheard, nil, nil, unknown, silent(59 * time.Second),
			false}, ""},
		"silent for so long": {facts{promised, unheard, nil, nil, unknown, silent(time.Minute), false},
			unreachable},
		"silent, and its node is Ready": {facts{promised, ready, nil, nil, unknown, silent(time.Hour), false}, ""},
		"silent, and its pod is there": {facts{promised, unheard, holds, nil, unknown, silent(time.Hour), false},
			""},
		"silent, and its pod has ended": {facts{promised, unheard, done, nil, unknown, silent(time.Hour), false},
			unreachable},
		"silent, a broker": {facts{promised, unheard, broker, nil, unknown, silent(time.Hour), false},
			unreachable},
		"silent, another system's": {facts{promised, unheard, stranger, nil, unknown, silent(time.Hour), false},
			""},
		"silent, a broker for less": {facts{promised, unheard, broker, nil, unknown, silent(time.Second), false},
			""},
		"never heard": {facts{promised, unheard, nil, nil, unknown, nil, false}, ""},
		"silent, and it promised nothing": {facts{claimBy("u1", "n1"), unheard, nil, nil, unknown, silent(time.Hour),
			false}, ""},
		"silent, in device-plugin mode": {facts{promisedPodless, unheard, nil, nil, unknown, silent(time.Hour),
			false}, ""},
		"pod done, node not Ready": {facts{claimBy("u1", "n1"), notReady, done, nil, unknown, nil, false}, ""},
		"node and pod gone":        {facts{claimBy("u1", "n1"), nil, nil, nil, unknown, nil, false}, nodeGone},
		"node gone, pod elsewhere": {facts{claimBy("u1", "n1"), nil, podOn(t, "u1", "node-b", ""), nil, unknown,
			nil, false}, nodeGone},
		"node gone, pod not bound": {facts{claimBy("u1", "n1"), nil, podOn(t, "u1", "", ""), nil, unknown, nil,
			false}, nodeGone},
		"node gone, pod done":       {facts{claimBy("u1", "n1"), nil, done, nil, unknown, nil, false}, nodeGone},
		"node gone, pod not known":  {facts{podless, nil, nil, nil, unknown, nil, false}, nodeGone},
		"node gone, pod runs there": {facts{claimBy("u1", "n1"), nil, holds, nil, unknown, nil, false}, ""},
		"node made anew":            {facts{claimBy("u1", "n0"), ready, nil, nil, unknown, nil, false}, nodeGone},
		"node made anew under it":   {facts{claimBy("u1", "n0"), ready, holds, nil, unknown, nil, false}, ""},

		"does not count, in use": {facts{claimBy("u1", "n1"), ready, holds, why, unknown, nil, false}, ""},
		"does not count, pod gone": {facts{claimBy("u1", "n1"), ready, nil, why, unknown, nil, false},
			doesNotCount},
		"does not count, pod done": {facts{claimBy("u1", "n1"), ready, done, why, unknown, nil, false},
			doesNotCount},
		"does not count, pod failed": {facts{claimBy("u1", "n1"), ready, failed, why, unknown, nil, false},
			doesNotCount},
		"does not count, another slot": {facts{claimBy("u1", "n1"), ready,
			podOn(t, "u1", "node-a", "cam-8120fe-1"), why, unknown, nil, false}, doesNotCount},
		"does not count, nothing assigned": {facts{claimBy("u1", "n1"), ready, podOn(t, "u1", "node-a", ""), why,
			unknown, nil, false}, doesNotCount},
		"does not count, forged assignment": {facts{claimBy("u1", "n1"), ready, forged, why, unknown, nil, false},
			doesNotCount},
		"does not count, pod on another node": {facts{claimBy("u1", "n1"), ready, podOn(t, "u1", "node-b", claimed),
			why, unknown, nil, false}, doesNotCount},
		"does not count, not the holder": {facts{otherHolder, ready, holds, why, unknown, nil, false},
			doesNotCount},
		"does not count, pod not known":       {facts{podless, ready, nil, why, unknown, nil, false}, doesNotCount},
		"does not count, device-plugin mode":  {facts{podless, plugins, nil, why, unknown, nil, false}, doesNotCount},
		"in nobody's way, device-plugin mode": {facts{podless, plugins, nil, nowhere, unknown, nil, false}, ""},
		"no Configuration, that mode": {facts{podless, plugins, nil, v1alpha1.ErrNoConfiguration, unknown, nil,
			false}, ""},
		"beyond the capacity, that mode":    {facts{podless, plugins, nil, beyond, unknown, nil, false}, ""},
		"beyond the capacity, another mode": {facts{podless, ready, nil, beyond, unknown, nil, false}, ""},
		"beyond the capacity, not Ready":    {facts{podless, pluginsDown, nil, beyond, unknown, nil, false}, ""},
		"beyond the capacity, of a pod": {facts{claimBy("u1", "n1"), plugins, nil, beyond, unknown, nil, false},
			""},
		"beyond the capacity, never counted": {facts{podless, plugins, nil, beyond, never, nil, false}, neverCounted},
		"in nobody's way, another mode":      {facts{podless, ready, nil, nowhere, unknown, nil, false}, ""},
		"in nobody's way, node not Ready":    {facts{podless, pluginsDown, nil, nowhere, unknown, nil, false}, ""},
		"in nobody's way, of a pod": {facts{claimBy("u1", "n1"), plugins, nil, nowhere, unknown, nil, false},
			""},

		// Once it has counted, a container of the node may use the slot.
		"counted once, pod gone":           {facts{claimBy("u1", "n1"), ready, nil, why, once, nil, false}, ""},
		"counted once, pod done":           {facts{claimBy("u1", "n1"), ready, done, why, once, nil, false}, ""},
		"counted once, node not Ready":     {facts{claimBy("u1", "n1"), notReady, nil, why, once, nil, false}, ""},
		"counted once, device-plugin mode": {facts{podless, plugins, nil, why, once, nil, false}, ""},
		"counted once, node gone":          {facts{claimBy("u1", "n1"), nil, nil, why, once, nil, false}, nodeGone},
		"counted once, out of service": {facts{claimBy("u1", "n1"), off, nil, why, once, nil, false},
			outOfService},
		"in nobody's way, never counted": {facts{podless, plugins, nil, nowhere, never, nil, false}, neverCounted},
		"does not count, that node not Ready": {facts{podless, pluginsDown, nil, why, unknown, nil, false},
			doesNotCount},
		"does not count, of another mode": {facts{claimBy("u1", "n1"), plugins, nil, why, unknown, nil, false},
			doesNotCount},
		"does not count, that node made anew": {facts{podlessBefore, plugins, nil, why, unknown, nil, false}, nodeGone},
		"never counted, in use":               {facts{claimBy("u1", "n1"), ready, holds, why, never, nil, false}, ""},
		"never counted, device-plugin mode":   {facts{podless, plugins, nil, why, never, nil, false}, neverCounted},
		"never counted, nothing assigned": {facts{claimBy("u1", "n1"), ready, podOn(t, "u1", "node-a", ""), why,
			never, nil, false}, neverCounted},
		"never counted, another's pod": {facts{claimBy("u1", "n1"), ready, podOn(t, "u1", "node-b", claimed),
			why, never, nil, false}, neverCounted},
		"never counted, pod not known": {facts{podless, ready, nil, why, never, nil, false}, neverCounted},
		"does not count, node not Ready": {facts{claimBy("u1", "n1"), notReady, nil, why, unknown, nil, false},
			doesNotCount},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.facts)
			if got.reason != tc.reason || (got.message == "") != (got.reason == "") {
				t.Errorf("%+v, want reason %q", got, tc.reason)
			}
			if want := got.reason == unreachable && tc.pod == broker; got.broker != want {
				t.Errorf("deletes the broker: %v, want %v", got.broker, want)
			}
			if want := tc.claim == promised && tc.silent != nil && *tc.silent < time.Minute && !v1alpha1.Ready(tc.node); (got.recheck > 0) != want {
				t.Errorf("judged again after %v, want that: %v", got.recheck, want)
			}
			if got.afterGrace != (got.reason == doesNotCount) {
				t.Errorf("%s: after the grace: %v", got.reason, got.afterGrace)
			}
			// What is deleted must have been suspect: else it is not looked at.
			if podExists := tc.pod != nil || tc.claim.Spec.Pod == nil; got.reason != "" && !suspect(tc.facts, podExists) {
				t.Error("not suspect")
			}
		})
	}
	if suspect(facts{claimBy("u1", "n1"), ready, nil, nil, unknown, nil, false}, true) {
		t.Error("a claim in use is suspect: it would be read from the API server")
	}
	if suspect(facts{claimBy("u1", "n1"), ready, nil, nil, unknown, nil, false}, false) {
		t.Error("a claim whose pod is gone is suspect, though its node is Ready and releases it")
	}
}
