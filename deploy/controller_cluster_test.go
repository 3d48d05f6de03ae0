package deploy

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// The controller's credential creates and deletes brokers, and no pods of others.
func TestTheControllersCredentialIsForBrokers(t *testing.T) {
	r := newRig(t)
	const namespace, instance = "brokers", "cam-8120fe"
	r.serviceAccount(namespace, "default")
	config, err := r.RESTConfig()
	r.check(err)
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:kubeslot-controller",
		Groups: []string{"system:authenticated"}}
	controller, err := kubernetes.NewForConfig(config)
	r.check(err)
	kind := akriv0.SchemeGroupVersion.WithKind("Instance")
	owner := metav1.NewControllerRef(&metav1.ObjectMeta{Name: instance, UID: "u"}, kind)
	owner.BlockOwnerDeletion = nil // which takes a right on Instances
	broker := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "broker", Labels: naming.PodLabels("cam", instance, nodeA, "broker"),
				OwnerReferences: []metav1.OwnerReference{*owner}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		change(p)
		return p
	}
	pods := controller.CoreV1().Pods(namespace)
	create := func(change func(*corev1.Pod)) error {
		_, err := pods.Create(t.Context(), broker(change), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	unowned := func(p *corev1.Pod) { p.OwnerReferences = nil }
	r.await("the policy to be in force", func() (bool, string) {
		err := create(unowned)
		want := "Pod brokers/broker: the controller may write and delete only"
		return strings.Contains(fmt.Sprint(err), want), fmt.Sprint(err)
	})
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"a broker": {func(*corev1.Pod) {}, ""},
		"no label": {func(p *corev1.Pod) { delete(p.Labels, naming.Controller) },
			"its labels must be controller=akri.sh"},
		"a second owner": {func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, r.node(nodeA)) },
			"creates it with that owner alone"},
		"bound by itself":  {func(p *corev1.Pod) { p.Spec.NodeName = nodeA }, "spec.nodeName must be empty"},
		"another Instance": {func(p *corev1.Pod) { p.OwnerReferences[0].Name = "cam-f30c78" }, "its labels must be"},
	} {
		err := create(tc.change)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	_, err = r.kube.CoreV1().Pods(namespace).Create(t.Context(), broker(unowned), metav1.CreateOptions{})
	r.check(err)
	err = pods.Delete(t.Context(), "broker", metav1.DeleteOptions{})
	if !strings.Contains(fmt.Sprint(err), "may write and delete only") {
		t.Errorf("deletes a user's pod: %v", err)
	}
	r.check(r.kube.CoreV1().Pods(namespace).Delete(t.Context(), "broker", metav1.DeleteOptions{}))
}
