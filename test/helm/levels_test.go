package helm

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The namespace may enforce restricted where kubecri is not among the release's pods, and privileged with it.
func TestEnforcedPodSecurityLevels(t *testing.T) {
	testAll(t, "installs the chart")
	in := up(t, 10*time.Minute)
	in.kubectl("delete", "namespace", namespace, "--ignore-not-found")
	in.kubectl("create", "namespace", namespace)
	enforce := func(level string) {
		in.kubectl("label", "namespace", namespace, "--overwrite", "pod-security.kubernetes.io/enforce="+level)
	}
	enforce("restricted")
	in.helm("install", "--wait", "--timeout", "4m", "--set", "kubecri.enabled=false")
	for _, name := range []string{"kube-scheduler", "kubeslot-controller"} {
		in.await(name+" to be available at the level restricted", func() (bool, string) {
			d, err := in.kube.AppsV1().Deployments(namespace).Get(in.ctx, name, metav1.GetOptions{})
			in.check(err)
			return d.Status.AvailableReplicas == *d.Spec.Replicas, fmt.Sprintf("%+v", d.Status)
		})
	}
	enforce("privileged")
	in.helm("upgrade", "--wait", "--timeout", "4m")
	in.awaitReady("kubecri", "kube-scheduler", "kubeslot-controller")
	in.uninstall()
	in.kubectl("delete", "crd", "-l", "app.kubernetes.io/part-of=kubeslot")
}
