package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A DRA DeviceClass has the name of a resource of ours: the pod is refused with the
// reason, gets nothing from either side, and runs once the class is gone.
func TestDeviceClassOfTheSameName(t *testing.T) {
	testAll(t, "restarts the scheduler")
	r := newRig(t)
	r.debugEcho("both", 1, nil, "both0")
	name := "akri.sh/both"
	classes := kube.ResourceV1().DeviceClasses()
	_, err := classes.Create(r.ctx, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: r.ns},
		Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: &name}}, metav1.CreateOptions{})
	r.check(err)
	deleted := false
	remove := func() {
		if !deleted {
			r.check(classes.Delete(context.Background(), r.ns, metav1.DeleteOptions{}))
			deleted = true
		}
	}
	t.Cleanup(remove)
	r.restartScheduler() // one that has read the class: a pod's news may overtake that of the class
	r.create(newPod("p", "", map[string]int64{"both": 1}))
	r.awaitPending("p", name+" is also the extendedResourceName of DeviceClass "+r.ns, "change that name")
	r.await("an event of the Configuration", func() (bool, string) {
		out, err := shared.Kubectl(r.ctx, "get", "events", "-n", r.ns, "--field-selector", "involvedObject.kind=Configuration", "-o", "jsonpath={.items[*].message}")
		return err == nil && strings.Contains(out, "DeviceClass "+r.ns), fmt.Sprint(out, err)
	})
	claims, err := kube.ResourceV1().ResourceClaims(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	if len(claims.Items) != 0 || len(r.claims("both")) != 0 {
		t.Errorf("given to a refused pod: claims %v, slots %v", claims.Items, r.claims("both"))
	}
	remove()
	r.agree("p", "both", 1)
	claims, err = kube.ResourceV1().ResourceClaims(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	if len(claims.Items) != 0 {
		t.Errorf("DRA gave the pod %v as well", claims.Items)
	}
}
