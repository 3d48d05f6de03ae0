package kubecripods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func kubecri(namespace string, ready v1.ConditionStatus) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubecri-x", UID: "u", Labels: map[string]string{"app.kubernetes.io/name": "kubecri"}},
		Spec: v1.PodSpec{NodeName: "a"}, Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: ready}}}}
}

// A node whose kubecri is to be a pod has kubecri while one of its namespace is Ready there, and does not end.
func TestAway(t *testing.T) {
	inPod := map[string]string{"kubeslot.io/kubecri-namespace": "kubeslot-system"}
	ready := kubecri("kubeslot-system", v1.ConditionTrue)
	ends, another := ready.DeepCopy(), ready.DeepCopy()
	ends.DeletionTimestamp = &metav1.Time{}
	another.Labels = map[string]string{"app.kubernetes.io/name": "viewer"}
	containers := func(kubecriReady, workerReady bool) *v1.Pod {
		pod := kubecri("kubeslot-system", v1.ConditionFalse)
		pod.Status.ContainerStatuses = []v1.ContainerStatus{
			{Name: "discovery", Ready: workerReady}, {Name: "kubecri", Ready: kubecriReady}}
		return pod
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		pods        []*v1.Pod
		want        bool
	}{
		"on the host":                   {nil, nil, false},
		"ready":                         {inPod, []*v1.Pod{another, ready}, false},
		"not there":                     {inPod, []*v1.Pod{another}, true},
		"not ready":                     {inPod, []*v1.Pod{kubecri("kubeslot-system", v1.ConditionFalse)}, true},
		"its worker is not ready":       {inPod, []*v1.Pod{containers(true, false)}, false},
		"its worker alone is ready":     {inPod, []*v1.Pod{containers(false, true)}, true},
		"ends":                          {inPod, []*v1.Pod{ends}, true},
		"another namespace's":           {inPod, []*v1.Pod{kubecri("default", v1.ConditionTrue)}, true},
		"one ends, the next is ready":   {inPod, []*v1.Pod{ends, ready}, false},
		"says nothing of its readiness": {inPod, []*v1.Pod{{ObjectMeta: ready.ObjectMeta}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := framework.NewNodeInfo(tc.pods...)
			node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: tc.annotations}})
			if got := Away(node); got != tc.want {
				t.Errorf("away: %v, want %v", got, tc.want)
			}
		})
	}
}

func anybody(*v1.Pod) bool { return true }

// Pods that wait for kubecri are tried when one of its pods becomes Ready, and at no other change of it.
func TestCame(t *testing.T) {
	ready, not := kubecri("x", v1.ConditionTrue), kubecri("x", v1.ConditionFalse)
	plain := ready.DeepCopy()
	plain.Labels = nil
	for name, tc := range map[string]struct {
		before, now any
		want        fwk.QueueingHint
	}{
		"becomes ready":     {not, ready, fwk.Queue},
		"seen ready":        {nil, ready, fwk.Queue},
		"stays ready":       {ready, ready, fwk.QueueSkip},
		"is ready no more":  {ready, not, fwk.QueueSkip},
		"goes":              {ready, nil, fwk.QueueSkip},
		"another's":         {nil, plain, fwk.QueueSkip},
		"what cannot be is": {"x", ready, fwk.Queue},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := came(anybody)(klog.Background(), &v1.Pod{}, tc.before, tc.now)
			if got != tc.want || (err != nil) != (tc.before == "x") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// Pods that wait for kubecri are tried when it is to be no pod any more, or one of another namespace.
func TestMoved(t *testing.T) {
	in := func(namespace string) *v1.Node {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		if namespace != "" {
			node.Annotations = map[string]string{"kubeslot.io/kubecri-namespace": namespace}
		}
		return node
	}
	for name, tc := range map[string]struct {
		before, now any
		want        fwk.QueueingHint
	}{
		"to the host":           {in("x"), in(""), fwk.Queue},
		"to another namespace":  {in("x"), in("y"), fwk.Queue},
		"stays":                 {in("x"), in("x"), fwk.QueueSkip},
		"into a pod":            {in(""), in("x"), fwk.QueueSkip},
		"stays on the host":     {in(""), in(""), fwk.QueueSkip},
		"the node is new":       {nil, in(""), fwk.QueueSkip},
		"the node is gone":      {in("x"), nil, fwk.QueueSkip},
		"what cannot be a node": {"x", in(""), fwk.Queue},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := moved(anybody)(klog.Background(), &v1.Pod{}, tc.before, tc.now)
			if got != tc.want || (err != nil) != (tc.before == "x") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
