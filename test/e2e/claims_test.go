package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

// claimsByScheduler gives the scheduler claimMode Scheduler, until the test ends.
func (r *rig) claimsByScheduler() {
	r.Helper()
	rights := filepath.Join(shared.Config().RepoRoot, "deploy/scheduler-claims")
	_, err := shared.Kubectl(r.ctx, "apply", "-k", rights)
	r.check(err)
	r.Cleanup(func() {
		_, err := shared.Kubectl(context.Background(), "delete", "-k", rights)
		r.check(err)
	})
	r.profiles(profile(v1.DefaultSchedulerName, map[string]any{"claimMode": "Scheduler"}))
}

// restartScheduler ends the scheduler in good order, so that it gives up its lease,
// and starts it again.
func (r *rig) restartScheduler() {
	r.Helper()
	if err := shared.Kill("kube-scheduler", "", syscall.SIGTERM); err == nil {
		r.await("the scheduler to end", func() (bool, string) {
			pid, err := shared.PID("kube-scheduler", "")
			return err != nil, fmt.Sprint("pid ", pid)
		})
	}
	r.check(shared.Start("kube-scheduler", ""))
}

// schedulerRuns starts the scheduler if it has ended, as systemd does: it ends when it
// cannot renew its lease for 10 s.
func (r *rig) schedulerRuns() {
	r.Helper()
	if _, err := shared.PID("kube-scheduler", ""); err != nil {
		r.check(shared.Start("kube-scheduler", ""))
	}
}

// write changes a slot's claim from one value to another, as another writer would.
func (r *rig) write(slot, from, to string) error {
	instance := slot[:strings.LastIndex(slot, "-")]
	path := "/spec/deviceUsage/" + slot
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": from}, {"op": "replace", "path": path, "value": to}})
	r.check(err)
	_, err = akri.AkriV0().Instances(r.ns).Patch(r.ctx, instance, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// A slot is claimed by the time that its pod is bound, and as long as the pod is,
// however long its image takes. With the last of the pods it is free.
func TestClaimedWhenBound(t *testing.T) {
	r := newRig(t)
	name := r.debugEcho("early", 3, func(c *akriv0.Configuration) { c.Spec.UniqueDevices = new(bool) }, "early0")[0].Name
	r.claimsByScheduler()
	r.check(shared.Kill("kubelet", nodeA, syscall.SIGSTOP)) // no container, so no claim of kubecri's
	resumed := false
	resume := func() {
		if !resumed {
			r.check(shared.Kill("kubelet", nodeA, syscall.SIGCONT))
			resumed = true
		}
	}
	t.Cleanup(resume)
	pulling := newPod("pulling", nodeA, map[string]int64{"early": 1})
	pulling.Spec.Containers[0].Image = "kubeslot.test/absent:1"
	want := map[string]int{}
	for _, p := range []*v1.Pod{newPod("any", nodeA, map[string]int64{"early": 1}), newPod("this", nodeA, map[string]int64{name: 1}), pulling} {
		p = r.create(p)
		r.await("pod "+p.Name+" to be bound", func() (bool, string) {
			return r.pod(p.Name).Spec.NodeName == nodeA, fmt.Sprint(r.pod(p.Name).Status.Conditions)
		})
		value := "C:" + string(p.UID) + ":" + nodeA
		if p.Name == "this" {
			value = nodeA
		}
		want[value]++
		got := map[string]int{}
		for _, value := range r.usage("early") {
			got[value]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("when pod %s is bound, the claims are %v, want %v", p.Name, got, want)
		}
	}
	resume()
	r.agree("any", "early", 1)
	r.awaitRunning("this")
	r.awaitEvent("pulling", "ErrImageNeverPull")
	// kubecri releases a claim that it cannot account for after a while, and leaves
	// those of bound pods, which are older, alone.
	slots := r.agree("any", "early", 1)
	r.delete("any")
	r.await("slot "+slots[0]+" to be free", func() (bool, string) {
		return r.write(slots[0], "", "C:nobody:"+nodeA) == nil, fmt.Sprint(r.usage("early"))
	})
	r.await("kubecri to release a claim without a pod", func() (bool, string) { return r.usage("early")[slots[0]] == "", fmt.Sprint(r.usage("early")) })
	if usage := r.usage("early"); len(usage) != 2 {
		t.Errorf("the claims of the bound pods are %v", usage)
	}
	for _, pod := range []string{"pulling", "this"} {
		r.delete(pod)
	}
	r.awaitUsage("early", map[string]string{})
}

// noBindings keeps the API server from binding pods of the namespace, which it
// answers with an internal error, until the returned function is called: the
// scheduler is held between claim and bind.
func (r *rig) noBindings() (allow func()) {
	r.Helper()
	nowhere, fail, none, scope := "https://127.0.0.1:1/", admissionv1.Fail, admissionv1.SideEffectClassNone, admissionv1.NamespacedScope
	hooks := kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(r.ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: r.ns}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: "no-bindings.kubeslot.test", ClientConfig: admissionv1.WebhookClientConfig{URL: &nowhere},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}, Scope: &scope}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": r.ns}},
		FailurePolicy:     &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
	}}}, metav1.CreateOptions{})
	r.check(err)
	deleted := false
	allow = func() {
		if !deleted {
			r.check(hooks.Delete(context.Background(), r.ns, metav1.DeleteOptions{}))
			deleted = true
		}
	}
	r.Cleanup(allow)
	r.await("the API server to bind no pod", func() (bool, string) {
		err := kube.CoreV1().Pods(r.ns).Bind(r.ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}, Target: v1.ObjectReference{Kind: "Node", Name: nodeA}}, metav1.CreateOptions{})
		return strings.Contains(fmt.Sprint(err), "no-bindings"), fmt.Sprint(err)
	})
	return allow
}

// A scheduler is killed between claim and bind. The next one releases what it
// claimed for pods that wait, and kubecri the rest: nothing leaks.
func TestSchedulerKilledAfterClaiming(t *testing.T) {
	r := newRig(t)
	name := r.debugEcho("killed", 3, func(c *akriv0.Configuration) { c.Spec.UniqueDevices = new(bool) }, "killed0")[0].Name
	r.claimsByScheduler()
	allow := r.noBindings()
	r.create(newPod("waits", nodeA, map[string]int64{"killed": 1}))
	r.create(newPod("goes", nodeA, map[string]int64{"killed": 1}))
	r.create(newPod("by-name", nodeA, map[string]int64{name: 1}))
	r.await("all slots to be claimed, and no pod bound", func() (bool, string) { return len(r.usage("killed")) == 3, fmt.Sprint(r.usage("killed")) })
	r.check(shared.Kill("kube-scheduler", "", syscall.SIGKILL))
	allow()
	r.delete("goes")
	for _, pod := range []string{"waits", "by-name"} {
		if r.pod(pod).Spec.NodeName != "" {
			t.Fatalf("pod %s was bound", pod)
		}
	}
	if usage := r.usage("killed"); len(usage) != 3 {
		t.Fatalf("nothing to leak: %v", usage)
	}
	r.check(shared.Start("kube-scheduler", ""))
	r.agree("waits", "killed", 1)
	r.agree("by-name", "killed", 1)
	waits, all := "C:"+string(r.pod("waits").UID)+":"+nodeA, []string{}
	r.await("only the claims of the two that run to be left", func() (bool, string) {
		all = slices.Sorted(maps.Values(r.usage("killed")))
		return slices.Equal(all, []string{waits, nodeA}), fmt.Sprint(all)
	})
	r.delete("waits")
	r.delete("by-name")
	r.awaitUsage("killed", map[string]string{})
}

// Another writer takes and frees slots all the time. Neither takes what the other
// has, and a pod that finds the slots taken says so and runs when one is free.
func TestAnotherWriter(t *testing.T) {
	r := newRig(t)
	instances := r.debugEcho("rival", 1, nil, "rival0", "rival1")
	r.claimsByScheduler()
	slots := []string{instances[0].Name + "-0", instances[1].Name + "-0"}
	const rival = "C:rival:elsewhere"

	for _, slot := range slots {
		r.check(r.write(slot, "", rival))
	}
	r.schedulerMayOnlyClaim(instances[0].Name)
	r.create(newPod("first", nodeA, map[string]int64{"rival": 1}))
	r.awaitPending("first", "short of akri.sh/rival", "0 of 2 slots free", "2 held")
	r.check(r.write(slots[1], rival, ""))
	if got := r.agree("first", "rival", 1); got[0] != slots[1] {
		t.Errorf("it got %v, and %s was free", got, slots[1])
	}
	r.check(r.write(slots[0], rival, ""))
	r.delete("first")
	r.awaitUsage("rival", map[string]string{})

	seen, err := akri.AkriV0().Instances(r.ns).Watch(r.ctx, metav1.ListOptions{})
	r.check(err)
	var watching, racing sync.WaitGroup
	watching.Go(func() { r.noClaimReplaced(seen) })
	done := make(chan struct{})
	taken := 0
	racing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			slot := slots[i%len(slots)]
			if r.write(slot, "", rival) != nil {
				continue
			}
			taken++
			if err := r.write(slot, rival, ""); err != nil {
				t.Errorf("the rival's claim of %s was taken from it: %v", slot, err)
			}
		}
	})
	for i := range 8 {
		name := fmt.Sprint("p", i)
		r.create(newPod(name, "", map[string]int64{"rival": 1}))
		r.awaitRunning(name)
		r.delete(name)
	}
	close(done)
	racing.Wait()
	seen.Stop()
	watching.Wait()
	r.awaitUsage("rival", map[string]string{})
	events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	lost := slices.DeleteFunc(events.Items, func(e v1.Event) bool {
		return !strings.Contains(e.Message, "cannot be bound to node") || !strings.Contains(e.Message, "is claimed by holder rival on node elsewhere")
	})
	t.Logf("the rival had slots %d times, and %d times it was just ahead of the scheduler", taken, len(lost))
	if taken == 0 {
		t.Error("it had none")
	}
}

// schedulerMayOnlyClaim checks the policy of deploy/scheduler-claims on an Instance
// whose slot is claimed.
func (r *rig) schedulerMayOnlyClaim(instance string) {
	r.Helper()
	config, err := shared.RESTConfig()
	r.check(err)
	config.Impersonate.UserName = "system:kube-scheduler"
	scheduler, err := versioned.NewForConfig(config)
	r.check(err)
	path := "/spec/deviceUsage/" + instance + "-0"
	for patch, want := range map[string]string{
		`{"op":"replace","path":"` + path + `","value":"C:thief:node-a"}`:     "may claim only a slot that is free",
		`{"op":"remove","path":"` + path + `"}`:                               "may not drop a slot",
		`{"op":"replace","path":"/spec/capacity","value":9}`:                  "may change only the deviceUsage",
		`{"op":"replace","path":"/spec/nodes","value":[]}`:                    "may change only the deviceUsage",
		`{"op":"add","path":"/metadata/annotations","value":{"some":"note"}}`: "may change only the deviceUsage",
	} {
		r.await("the scheduler's "+patch+" to be refused, for it "+want, func() (bool, string) { // once the policy is in force
			_, err := scheduler.AkriV0().Instances(r.ns).Patch(r.ctx, instance, types.JSONPatchType, []byte("["+patch+"]"),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return strings.Contains(fmt.Sprint(err), want), fmt.Sprint(err)
		})
	}
}

// noClaimReplaced follows Instances until the watch ends: a claim ends before the
// next one begins.
func (r *rig) noClaimReplaced(events watch.Interface) {
	last := map[string]string{}
	for event := range events.ResultChan() {
		in, ok := event.Object.(*akriv0.Instance)
		if !ok {
			continue
		}
		for slot, value := range in.Spec.DeviceUsage {
			if was := last[slot]; was != "" && value != "" && was != value {
				r.Errorf("the claim %s of slot %s was replaced by %s", was, slot, value)
			}
			last[slot] = value
		}
	}
}

// The API server does not track who set what of an Instance, until somebody applies
// it, as Akri's agent does: then its record stays, and nobody's nodes are lost.
func TestFieldsOfInstances(t *testing.T) {
	r := newRig(t)
	in := r.debugEcho("fields", 2, nil, "fields0")[0]
	r.await("the record of fields to end", func() (bool, string) {
		in = r.instances("fields")[0]
		return len(in.ManagedFields) == 0, fmt.Sprint(in.ManagedFields)
	})
	apply, err := json.Marshal(map[string]any{"apiVersion": "akri.sh/v0", "kind": "Instance", "metadata": map[string]any{"name": in.Name},
		"spec": map[string]any{"configurationName": "fields", "nodes": []string{"node-of-akri"}}})
	r.check(err)
	_, err = akri.AkriV0().Instances(r.ns).Patch(r.ctx, in.Name, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "node-of-akri"})
	r.check(err)
	c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, "fields", metav1.GetOptions{})
	r.check(err)
	c.Spec.Capacity = 3
	_, err = akri.AkriV0().Configurations(r.ns).Update(r.ctx, c, metav1.UpdateOptions{})
	r.check(err)
	r.await("kubecri to write the Instance", func() (bool, string) {
		in = r.instances("fields")[0]
		return in.Spec.Capacity == 3, fmt.Sprint(in.Spec.Capacity)
	})
	applied := slices.ContainsFunc(in.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "node-of-akri" })
	if slices.Sort(in.Spec.Nodes); !applied || !slices.Equal(in.Spec.Nodes, []string{nodeA, nodeB, "node-of-akri"}) {
		t.Errorf("nodes %v, and the record of fields %v", in.Spec.Nodes, in.ManagedFields)
	}
}
