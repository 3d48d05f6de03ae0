package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Claims get any device, different ones, or the one that they select; a claim's slot is free when its pod is gone.
func TestDRAClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	instances := r.draEcho("dra", 2, nil, "dra0", "dra1")
	r.createTemplate("any", wants("dra", 1))
	r.createTemplate("two", wants("dra", 2, different))
	r.createTemplate("this", wants("dra", 1, where(v1alpha1.DRAInstance, instances[1])))

	r.create(claimPod("any", nodeA, "any"))
	r.create(claimPod("two", nodeB, "two"))
	all := append(r.agreeDRA("any", "dra", 1), r.agreeDRA("two", "dra", 2)...)
	if two := r.instancesOf(all[1:]); len(two) != 2 {
		t.Errorf("pod two has slots of %q, want two Instances", two)
	}
	r.awaitView("dra")
	r.delete("any")
	if left := r.claims("dra"); len(left) != 2 {
		t.Errorf("pod any is gone, and the claims are %v", left)
	}
	r.create(claimPod("this", nodeA, "this"))
	all = append(all[1:], r.agreeDRA("this", "dra", 1)...)
	if got := r.instancesOf(all[2:]); !slices.Equal(got, instances[1:]) {
		t.Errorf("pod this has %q, want %q", got, instances[1:])
	}
	r.create(claimPod("last", "", "any"))
	all = append(all, r.agreeDRA("last", "dra", 1)...)
	if slices.Sort(all); len(slices.Compact(all)) != 4 {
		t.Errorf("slots are given twice: %q", all)
	}
	r.create(claimPod("waits", "", "any"))
	r.awaitUnallocated("waits")
	r.delete("last")
	r.agreeDRA("waits", "dra", 1)

	// A pod that is made again has another claim, and a device.
	r.delete("this")
	r.create(claimPod("this", nodeA, "this"))
	r.agreeDRA("this", "dra", 1)
	for _, pod := range []string{"this", "two", "waits"} {
		r.delete(pod)
	}
	if left := r.claims("dra"); len(left) != 0 {
		t.Errorf("all pods are gone, and the claims are %v", left)
	}
}

// instancesOf are the Instances of slots, sorted, each once.
func (r *rig) instancesOf(slots []string) []string {
	r.Helper()
	var instances []string
	for _, name := range slots {
		s, err := slot.Parse(name)
		r.check(err)
		instances = append(instances, s.Instance)
	}
	slices.Sort(instances)
	return slices.Compact(instances)
}

// Two pods on a node use one claim, and so one slot, until the last of them has ended; a pod on another node cannot.
func TestDRASharedClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.draEcho("both-use", 2, nil, "both-use0")
	r.createClaim("one", wants("both-use", 1))
	r.create(sharePod("first", nodeA, "one"))
	held := r.agreeDRA("first", "both-use", 1)
	r.create(sharePod("second", nodeA, "one"))
	if also := r.agreeDRA("second", "both-use", 1); !slices.Equal(also, held) {
		t.Errorf("the pods of one claim have %q and %q", held, also)
	}
	r.create(sharePod("elsewhere", nodeB, "one"))
	r.awaitPending("elsewhere", "resourceclaim not available on the node")
	r.delete("elsewhere")
	r.delete("first")
	r.agreeDRA("second", "both-use", 1)
	r.delete("second")
	if left := r.claims("both-use"); len(left) != 0 {
		t.Errorf("the claim's pods are gone, and the slots are %v", left)
	}
}

// Local devices are each node's own: a claim takes its pod there.
func TestDRALocalDevices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.check(r.createConfiguration("draw", akriv0.ConfigurationSpec{Allocator: akriv0.AllocatorDRA,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho",
			DiscoveryDetails: `{"descriptions": ["stick"], "shared": false}`}}))
	devices := r.awaitDevices("draw", 2)
	r.awaitPublished("draw", devices[0].name, devices[1].name)
	for i, d := range devices {
		template := fmt.Sprint("stick-", i)
		r.createTemplate(template, wants("draw", 1, where(v1alpha1.DRAInstance, d.name)))
		r.create(claimPod(template, "", template))
		r.agreeDRA(template, "draw", 1)
		if p := r.pod(template); p.Spec.NodeName != d.nodes[0] {
			t.Errorf("pod %s is on node %s, its device on %q", template, p.Spec.NodeName, d.nodes)
		}
	}
	r.createTemplate("any", wants("draw", 1))
	r.create(claimPod("waits", "", "any"))
	r.awaitUnallocated("waits")
}

// A Job's pods use a claim each, and their slots are free when they have succeeded.
func TestDRAJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.draEcho("dra-job", 1, nil, "dra-job0")
	r.createTemplate("one", wants("dra-job", 1))
	p := claimPod("worker", "", "one")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Containers[0].Args = []string{"exit", "0"}
	_, err := kube.BatchV1().Jobs(r.ns).Create(r.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](2),
			Template: v1.PodTemplateSpec{Spec: p.Spec}}}, metav1.CreateOptions{})
	r.check(err)
	r.await("three pods to have the device in turn", func() (bool, string) {
		job, err := kube.BatchV1().Jobs(r.ns).Get(r.ctx, "job", metav1.GetOptions{})
		r.check(err)
		return job.Status.Succeeded == 3 && job.Status.Failed == 0, fmt.Sprintf("%+v", job.Status)
	})
	r.awaitClaims("dra-job", map[string]holding{})
	r.check(kube.BatchV1().Jobs(r.ns).Delete(r.ctx, "job", metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
}

// With uniqueDevices false, pods may ask for an extended resource as before. The scheduler makes their claims, of
// different devices.
func TestDRAExtendedResource(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	notUnique := func(c *akriv0.ConfigurationSpec) { c.UniqueDevices = new(bool) }
	r.draEcho("press-dra", 1, notUnique, "press-dra0", "press-dra1")
	classes, of := kube.ResourceV1().DeviceClasses(), v1alpha1.DeviceClassName("press-dra")
	r.await("the DeviceClass to give the extended resource", func() (bool, string) {
		class, err := classes.Get(r.ctx, of, metav1.GetOptions{})
		r.check(err)
		name := ptr.Deref(class.Spec.ExtendedResourceName, "")
		return name == "akri.sh/press-dra", name
	})
	r.create(newPod("two", nodeA, map[string]int64{"press-dra": 2}))
	r.agreeDRA("two", "press-dra", 2)
	r.create(newPod("more", nodeB, map[string]int64{"press-dra": 1}))
	r.awaitUnallocated("more")
	r.delete("two")
	r.agreeDRA("more", "press-dra", 1)
}

// A Configuration that moves to DRA while slots of it are held: a pod that requests it meanwhile waits, and gets a
// claim once no node advertises slots.
func TestDRAExtendedResourceAfterSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("was-slots", 1, func(c *akriv0.Configuration) { c.Spec.UniqueDevices = new(bool) }, "was-slots0")
	r.create(newPod("old", nodeA, map[string]int64{"was-slots": 1}))
	r.agree("old", "was-slots", 1)
	r.allocator("was-slots", akriv0.AllocatorDRA)
	r.awaitAllocator("was-slots", akriv0.AllocatorDRA, r.instancesOf(r.agree("old", "was-slots", 1))...)
	r.create(newPod("new", nodeA, map[string]int64{"was-slots": 1}))
	r.awaitPending("new", "akri.sh/was-slots")
	r.delete("old")
	r.agreeDRA("new", "was-slots", 1)
}

// Two pods on two nodes race for a shared device's last slot by claims: one runs, the other waits until it ends.
func TestDRARaceForTheLastSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := r.TempDir()
	r.draEcho("dra-last", 1, func(c *akriv0.ConfigurationSpec) {
		c.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(
			"descriptions: [dra-last0]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", dir)
	}, "dra-last0")
	r.createTemplate("one", wants("dra-last", 1))
	for round := range 3 {
		names := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		for i, node := range []string{nodeA, nodeB} {
			p := claimPod(names[i], node, "one")
			p.Spec.Containers[0].Args = []string{"hold", "/slots", "1h"}
			r.create(p)
		}
		first, second := names[0], names[1]
		r.await("one of the pods to be bound", func() (bool, string) {
			if r.pod(first).Spec.NodeName == "" {
				first, second = second, first
			}
			return r.pod(first).Spec.NodeName != "", "none"
		})
		r.agreeDRA(first, "dra-last", 1)
		r.awaitUnallocated(second)
		r.delete(first)
		r.agreeDRA(second, "dra-last", 1)
		r.delete(second)
	}
	r.noConflict(dir)
}

// noConflict checks that no two containers have used a slot at once.
func (r *rig) noConflict(dir string) {
	r.Helper()
	if conflict, err := os.ReadFile(filepath.Join(dir, "CONFLICT")); err == nil {
		r.Errorf("containers used a slot at the same time:\n%s", conflict)
	}
}

// Who asks for such devices in the way of extended resources is refused, and the reason says what to write instead.
func TestDRARefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	instances := r.draEcho("dra-only", 1, func(c *akriv0.ConfigurationSpec) {
		c.AllowedNamespaces = &akriv0.AllowedNamespaces{Names: []string{"nobody"}}
	}, "dra-only0")
	class := v1alpha1.DeviceClassName("dra-only")
	r.create(newPod("by-kind", "", map[string]int64{"dra-only": 1}))
	r.awaitPending("by-kind", "akri.sh/dra-only", class)
	r.create(newPod("by-name", "", map[string]int64{instances[0]: 1}))
	r.awaitPending("by-name", "akri.sh/"+instances[0], class)
	if got := r.claims("dra-only"); len(got) != 0 {
		t.Errorf("pods that were refused have %v", got)
	}

	// The Configuration's own namespace may claim, others may not.
	r.createTemplate("one", wants("dra-only", 1))
	other, namespaces := r.ns+"-other", kube.CoreV1().Namespaces()
	meta := metav1.ObjectMeta{Name: other}
	_, err := namespaces.Create(r.ctx, &v1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	r.check(err)
	t.Cleanup(func() { r.check(namespaces.Delete(context.Background(), other, metav1.DeleteOptions{})) })
	claims := kube.ResourceV1().ResourceClaims(other)
	templates := kube.ResourceV1().ResourceClaimTemplates(other)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: wants("dra-only", 1)}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: claim.ObjectMeta,
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim.Spec}}
	try := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	r.await("a claim of another namespace to be refused", func() (bool, string) {
		_, err := claims.Create(r.ctx, claim, try)
		return err != nil && strings.Contains(err.Error(), "dra-only"), fmt.Sprint(err)
	})
	if _, err := templates.Create(r.ctx, template, try); err == nil || !strings.Contains(err.Error(), "dra-only") {
		t.Errorf("a template of another namespace: %v", err)
	}
	r.patchConfiguration("dra-only", fmt.Sprintf(`{"spec":{"allowedNamespaces":{"names":[%q]}}}`, other))
	r.await("a claim of a namespace that is allowed", func() (bool, string) {
		_, err := claims.Create(r.ctx, claim, try)
		return err == nil, fmt.Sprint(err)
	})
	r.create(claimPod("own", "", "one"))
	r.agreeDRA("own", "dra-only", 1)
}

// What the README of examples/dra says: each pod gets what its file says, and a Deployment moves to claims.
func TestExampleDRA(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const cameras, belt = "lab-cameras", "belt-cameras"
	r.applyExample("dra", "cameras.yaml", "any.yaml", "two.yaml", "gate.yaml", "shared.yaml", "press.yaml")
	r.applyExample("dra", "before.yaml")
	r.agreeDRA("any", cameras, 1)
	if two := r.instancesOf(r.agreeDRA("two", cameras, 2)); len(two) != 2 {
		t.Errorf("pod two has slots of %q, want two cameras", two)
	}
	r.agreeDRA("gate", cameras, 1)
	if env := r.env("gate"); env["DEBUG_ECHO_DESCRIPTION"] != "gate" {
		t.Errorf("pod gate has the camera %q", env["DEBUG_ECHO_DESCRIPTION"])
	}
	if a, b := r.agreeDRA("shared-a", cameras, 1), r.agreeDRA("shared-b", cameras, 1); !slices.Equal(a, b) {
		t.Errorf("the pods of one claim have %q and %q", a, b)
	}
	r.agreeDRA("batch", "lab-press", 1)

	for _, pod := range r.awaitDeployment("belt", 2, false) {
		r.agree(pod, belt, 1)
	}
	r.applyExample("dra", "after.yaml")
	for _, pod := range r.awaitDeployment("belt", 2, true) {
		r.agreeDRA(pod, belt, 1)
	}
	r.check(kube.AppsV1().Deployments(r.ns).Delete(r.ctx, "belt", metav1.DeleteOptions{}))
}

// awaitDeployment waits until just n pods of the Deployment are there and run, all with claims or none, and returns
// their names.
func (r *rig) awaitDeployment(name string, n int, claims bool) (pods []string) {
	r.Helper()
	r.await(fmt.Sprintf("%d pods of Deployment %s to run", n, name), func() (bool, string) {
		list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		r.check(err)
		pods = nil
		for _, p := range list.Items {
			runs := p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil
			if runs && (len(p.Spec.ResourceClaims) > 0) == claims {
				pods = append(pods, p.Name)
			}
		}
		return len(pods) == n && len(list.Items) == n, fmt.Sprint(pods, " of ", len(list.Items))
	})
	return pods
}
