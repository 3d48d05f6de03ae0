package source

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	kubedevice "github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// holders are the pods that hold slots among those of the metadata, which run. A pod is known, as far as a view of
// slots needs it, when it has claimed each slot that it was assigned: it runs on the node of its claims. Of the others
// it is unclear what their containers do, as of one that ended and is started again, or that kubecri did not see; and
// where a kubelet gives out slots, which node the pod of a claim's name is on.
func holders(pods []metav1.PartialObjectMetadata, claims []v1alpha1.SlotClaim) (
	known []runtime.Object, unclear []types.NamespacedName) {
	ofSlot := make(map[string]*v1alpha1.SlotClaim, len(claims))
	named := map[types.UID]bool{}
	seen := map[string]bool{} // namespace/name of pods that nodes see to use what their kubelets gave out
	for i := range claims {
		c := &claims[i]
		ofSlot[c.Name] = c
		if c.Spec.Pod != nil {
			named[c.Spec.Pod.UID] = true
		} else if user := c.Annotations[v1alpha1.PodAnnotation]; user != "" {
			seen[user] = true
		}
	}
	for i := range pods {
		pod := &pods[i]
		info, slots := assigned(pod)
		switch {
		case len(slots) > 0 && claimedAll(pod.UID, info.NodeName, slots, ofSlot):
			known = append(known, holding(pod, info.NodeName))
		case len(slots) > 0, named[pod.UID], seen[pod.Namespace+"/"+pod.Name]:
			unclear = append(unclear, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	return known, unclear
}

// assigned is what the annotation of a pod says that it was assigned, and the slots of it. One that cannot be read,
// or is another pod's, says nothing.
func assigned(pod *metav1.PartialObjectMetadata) (info *kubedevice.PodInfo, slots []string) {
	if pod.Annotations[assignment.HolderAnnotation] != string(pod.UID) {
		return nil, nil
	}
	info, err := assignment.DecodePod(pod.Annotations)
	if err != nil || info == nil {
		return nil, nil
	}
	for _, containers := range []map[string]kubedevice.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for _, c := range containers {
			grants, _ := assignment.Grants(&c) // an error is of a container that is not created
			for _, g := range grants {
				slots = append(slots, g.Slot.String())
			}
		}
	}
	return info, slots
}

// claimedAll reports whether the pod has claimed all of the slots on the node.
func claimedAll(pod types.UID, node string, slots []string, claims map[string]*v1alpha1.SlotClaim) bool {
	return !slices.ContainsFunc(slots, func(slot string) bool {
		c := claims[slot]
		return c == nil || c.Spec.Holder != string(pod) || c.Spec.NodeName != node
	})
}

// rivals are the pods that hold slots which others of the pods were assigned.
func rivals(pods []runtime.Object, claims []v1alpha1.SlotClaim) []types.NamespacedName {
	holder := map[string]types.UID{} // of slots that the pods were assigned
	for _, o := range pods {
		pod := o.(*corev1.Pod)
		_, slots := assigned(&metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
		for _, slot := range slots {
			holder[slot] = pod.UID
		}
	}
	var all []types.NamespacedName
	for i := range claims {
		pod, uid := claims[i].Spec.Pod, holder[claims[i].Name]
		if pod != nil && uid != "" && pod.UID != uid {
			all = append(all, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	return all
}

// holding is the pod of the metadata, without its annotations: its claims say what it holds.
func holding(pod *metav1.PartialObjectMetadata, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	p.Annotations = nil
	return p
}
