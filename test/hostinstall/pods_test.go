package hostinstall

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// startPod starts a pod, with devices if cameras > 0, and returns it once it runs.
func (h *host) startPod(name string, cameras int64) *corev1.Pod {
	h.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64),
		Containers:                    []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever}},
	}}
	if cameras > 0 {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"akri.sh/cameras": *resource.NewQuantity(cameras, resource.DecimalSI)}
	}
	_, err := h.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(h.ctx, pod, metav1.CreateOptions{})
	h.check(err)
	h.await("pod "+name+" to run", func() (bool, string) {
		pod, err = h.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(h.ctx, name, metav1.GetOptions{})
		return err == nil && running(pod), fmt.Sprint(err, pod.Status)
	})
	return pod
}

func running(pod *corev1.Pod) bool {
	s := pod.Status.ContainerStatuses
	return len(s) == 1 && s[0].State.Running != nil
}

// sameContainer checks that the pod's container is the one that it was, and runs.
func (h *host) sameContainer(before *corev1.Pod) {
	h.Helper()
	now, err := h.kube.CoreV1().Pods(before.Namespace).Get(h.ctx, before.Name, metav1.GetOptions{})
	h.check(err)
	if now.UID != before.UID || !running(now) || now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		h.Errorf("pod %s did not just go on: %+v", before.Name, now.Status)
	}
}
