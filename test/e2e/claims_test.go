package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
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

// controlPlaneRuns starts the scheduler and the controller if they have ended, as
// systemd does: they end when they cannot renew their leases for 10 s.
func (r *rig) controlPlaneRuns() {
	r.Helper()
	back := time.Now()
	// One that still runs may be about to end: what it renews, it keeps.
	r.await("the scheduler and the controller to run, and the scheduler to renew its lease", func() (bool, string) {
		for _, component := range []string{cluster.Scheduler, cluster.Controller} {
			if _, err := shared.PID(component, ""); err != nil {
				r.check(shared.Start(component, ""))
			}
		}
		lease, err := kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(r.ctx, "kube-scheduler", metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return false, fmt.Sprint(err)
		}
		return lease.Spec.RenewTime.After(back), "renewed last at " + lease.Spec.RenewTime.String()
	})
}

// A slot is claimed by the time that its pod is bound, and as long as the pod is,
// however long its image takes. With the last of the pods it is free.
func TestClaimedWhenBound(t *testing.T) {
	testAll(t, "freezes a kubelet and restarts the scheduler")
	r := newRig(t)
	name := r.debugEcho("early", 3, func(c *akriv0.Configuration) { c.Spec.UniqueDevices = new(bool) }, "early0")[0].name
	r.claimsByScheduler()
	r.awaitReady(nodeA)                                     // an earlier test may have restarted its kubelet
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
	want := map[holding]bool{}
	for _, p := range []*v1.Pod{newPod("any", nodeA, map[string]int64{"early": 1}), newPod("this", nodeA, map[string]int64{name: 1}), pulling} {
		r.create(p)
		r.await("pod "+p.Name+" to be bound", func() (bool, string) {
			return r.pod(p.Name).Spec.NodeName == nodeA, fmt.Sprint(r.pod(p.Name).Status.Conditions)
		})
		held := heldBy(r.pod(p.Name))
		if p.Name == "this" {
			held = held.byName()
		}
		want[held] = true
		claims, got := r.claims("early"), map[holding]bool{}
		for _, h := range claims {
			got[h] = true
		}
		if len(claims) != len(want) || !maps.Equal(got, want) {
			t.Errorf("when pod %s is bound, the claims are %v, want %v", p.Name, claims, want)
		}
	}
	resume()
	r.agree("any", "early", 1)
	r.awaitRunning("this")
	r.awaitEvent("pulling", "ErrImageNeverPull")
	// A claim without a pod, as a scheduler that was killed may leave, is released after
	// a while. Those of bound pods, which are older, stay.
	slots := r.agree("any", "early", 1)
	r.delete("any")
	n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
	r.check(err)
	ghost := v1alpha1.PodReference{Namespace: r.ns, Name: "ghost", UID: "ghost-uid"}
	r.await("slot "+slots[0]+" to be free", func() (bool, string) {
		err := r.claim(slots[0], v1alpha1.NodeOwner(nodeA, n.UID),
			v1alpha1.SlotClaimSpec{NodeName: nodeA, Level: v1alpha1.ConfigurationLevel, Holder: string(ghost.UID), Pod: &ghost, Container: "main"})
		return err == nil, fmt.Sprint(err, r.claims("early"))
	})
	r.await("the claim without a pod to be released", func() (bool, string) {
		_, claimed := r.claims("early")[slots[0]]
		return !claimed, fmt.Sprint(r.claims("early"))
	})
	if claims := r.claims("early"); len(claims) != 2 {
		t.Errorf("the claims of the bound pods are %v", claims)
	}
	for _, pod := range []string{"pulling", "this"} {
		r.delete(pod)
	}
	r.awaitClaims("early", map[string]holding{})
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

// A scheduler is killed between claim and bind. kubecri releases what it claimed for
// pods that were not bound: nothing leaks.
func TestSchedulerKilledAfterClaiming(t *testing.T) {
	testAll(t, "kills the scheduler again")
	r := newRig(t)
	name := r.debugEcho("killed", 3, func(c *akriv0.Configuration) { c.Spec.UniqueDevices = new(bool) }, "killed0")[0].name
	r.claimsByScheduler()
	allow := r.noBindings()
	r.create(newPod("waits", nodeA, map[string]int64{"killed": 1}))
	r.create(newPod("goes", nodeA, map[string]int64{"killed": 1}))
	r.create(newPod("by-name", nodeA, map[string]int64{name: 1}))
	r.await("all slots to be claimed, and no pod bound", func() (bool, string) { return len(r.claims("killed")) == 3, fmt.Sprint(r.claims("killed")) })
	r.check(shared.Kill("kube-scheduler", "", syscall.SIGKILL))
	if claims := r.claims("killed"); len(claims) != 3 {
		t.Fatalf("nothing to leak: %v", claims)
	}
	allow()
	r.delete("goes")
	for _, pod := range []string{"waits", "by-name"} {
		if r.pod(pod).Spec.NodeName != "" {
			t.Fatalf("pod %s was bound", pod)
		}
	}
	r.check(shared.Start("kube-scheduler", ""))
	waits, byName := r.agree("waits", "killed", 1)[0], r.agree("by-name", "killed", 1)[0]
	r.awaitClaims("killed", map[string]holding{waits: heldBy(r.pod("waits")), byName: heldBy(r.pod("by-name")).byName()})
	r.delete("waits")
	r.delete("by-name")
	r.awaitClaims("killed", map[string]holding{})
}

// Another writer takes and frees slots all the time. Neither takes what the other
// has, and a pod that finds the slots taken says so and runs when one is free.
func TestAnotherWriter(t *testing.T) {
	testAll(t, "restarts the scheduler")
	r := newRig(t)
	devices := r.debugEcho("rival", 1, nil, "rival0", "rival1")
	r.claimsByScheduler()
	slots := []string{devices[0].name + "-0", devices[1].name + "-0"}
	rival := r.newStranger("rival")

	for _, name := range slots {
		r.check(rival.take(name))
	}
	r.schedulerMayOnlyClaim(slots[0])
	r.create(newPod("first", nodeA, map[string]int64{"rival": 1}))
	r.awaitPending("first", "short of akri.sh/rival", "0 of 2 slots free", "2 held")
	r.check(r.releaseClaim(slots[1]))
	if got := r.agree("first", "rival", 1); got[0] != slots[1] {
		t.Errorf("it got %v, and %s was free", got, slots[1])
	}
	r.check(r.releaseClaim(slots[0]))
	r.delete("first")
	r.awaitClaims("rival", map[string]holding{})

	seen, err := akri.KubeslotV1alpha1().SlotClaims().Watch(r.ctx, metav1.ListOptions{})
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
			name := slots[i%len(slots)]
			if rival.take(name) != nil {
				continue
			}
			taken++
			if err := r.releaseClaim(name); err != nil {
				t.Errorf("the rival's claim of %s was taken from it: %v", name, err)
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
	r.awaitClaims("rival", map[string]holding{})
	events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	lost := slices.DeleteFunc(events.Items, func(e v1.Event) bool {
		return !containsAll(e.Message, []string{"cannot be bound to node", theirs.holder, strangerName})
	})
	t.Logf("the rival had slots %d times, and %d times it was just ahead of the scheduler", taken, len(lost))
	if taken == 0 {
		t.Error("it had none")
	}
}

// schedulerMayOnlyClaim checks the rights of deploy/scheduler-claims, on a slot that is
// claimed and on the one after it.
func (r *rig) schedulerMayOnlyClaim(claimed string) {
	r.Helper()
	config, err := shared.RESTConfig()
	r.check(err)
	config.Impersonate.UserName = "system:kube-scheduler"
	scheduler, err := versioned.NewForConfig(config)
	r.check(err)
	name, err := slot.Parse(claimed)
	r.check(err)
	next := slot.Name{Instance: name.Instance, Index: name.Index + 1}
	spec := v1alpha1.SlotClaimSpec{NodeName: nodeA, Level: v1alpha1.ConfigurationLevel, Holder: "thief"}
	create := func(name slot.Name, owner string, finalizers ...string) error {
		c := v1alpha1.NewSlotClaim(name, spec, v1alpha1.NodeOwner(owner, "some-uid"))
		c.Finalizers = finalizers
		_, err := scheduler.KubeslotV1alpha1().SlotClaims().Create(r.ctx, c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	r.await("the rights of the scheduler to be in force", func() (bool, string) {
		err := create(next, nodeA)
		return err == nil, fmt.Sprint(err)
	})
	patch := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for what, try := range map[string]func() error{
		"already exists":                  func() error { return create(name, nodeA) },
		"the Node of their spec.nodeName": func() error { return create(next, nodeB) },
		"without finalizers":              func() error { return create(next, nodeA, "kubeslot.test/never") },
		`cannot patch resource "slotclaims"`: func() error {
			_, err := scheduler.KubeslotV1alpha1().SlotClaims().Patch(r.ctx, claimed, types.MergePatchType, []byte(`{"spec":{"holder":"thief"}}`), patch)
			return err
		},
		`cannot patch resource "instances"`: func() error {
			_, err := scheduler.AkriV0().Instances(r.ns).Patch(r.ctx, name.Instance, types.MergePatchType, []byte(`{"spec":{"capacity":9}}`), patch)
			return err
		},
	} {
		r.await("the scheduler to be refused, because "+what, func() (bool, string) { // once the policy is in force
			err := try()
			return strings.Contains(fmt.Sprint(err), what), fmt.Sprint(err)
		})
	}
}

// noClaimReplaced follows SlotClaims until the watch ends: a claim ends before the
// next one of its slot begins.
func (r *rig) noClaimReplaced(events watch.Interface) {
	last := map[string]*v1alpha1.SlotClaim{}
	for event := range events.ResultChan() {
		claim, ok := event.Object.(*v1alpha1.SlotClaim)
		if !ok {
			continue
		}
		if was := last[claim.Name]; was != nil && (was.UID != claim.UID || was.Spec.Holder != claim.Spec.Holder) {
			r.Errorf("the claim of slot %s by %v was replaced by %v", claim.Name, was.Spec, claim.Spec)
		}
		last[claim.Name] = claim
		if event.Type == watch.Deleted {
			delete(last, claim.Name)
		}
	}
}
