package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

func TestRequestsThatCannotBeMet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(newPod("unknown", "", map[string]int64{"sonar": 1}))
	r.awaitPending("unknown", `container "main" requests akri.sh/sonar`, `no Configuration or Instance "sonar"`)

	r.debugEcho("few", 2, nil, "few0", "few1")
	r.create(newPod("greedy", "", map[string]int64{"few": 3}))
	r.awaitPending("greedy", `too few Instances for akri.sh/few: container "main" needs 3 different ones (uniqueDevices), 2 reached`)
	if got := r.claims("few"); len(got) != 0 {
		t.Errorf("a refused pod holds slots: %v", got)
	}

	// What was missing appears, and the pod runs.
	r.debugEcho("sonar", 1, nil, "sonar0")
	r.agree("unknown", "sonar", 1)
}

// A malformed annotation on a pod that asks for slots is refused with the
// reason; once corrected, the pod runs.
func TestMalformedAnnotation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("mal", 1, nil, "mal0")
	p := newPod("p", "", map[string]int64{"mal": 1})
	p.Annotations[assignment.Annotation] = `{"runningcontainer": 7}`
	r.create(p)
	r.awaitPending("p", assignment.Annotation, "not the JSON of a PodInfo")
	rewrite := func(text string) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{assignment.Annotation: text}}})
		r.check(err)
		_, err = kube.CoreV1().Pods(r.ns).Patch(r.ctx, "p", types.MergePatchType, patch, metav1.PatchOptions{})
		r.check(err)
	}
	rewrite(`{"runningcontainers":{"main":{}}}`)
	r.awaitPending("p", `unknown key "runningcontainers"`, `did you mean "runningcontainer"?`)
	rewrite(`{}`)
	r.agree("p", "mal", 1)
}

// Pods that never came through the scheduler are granted nothing, whatever their
// annotation says, and harm nobody.
func TestForgedAssignments(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slot := r.debugEcho("forge", 8, nil, "forge0")[0].name + "-0"
	forged := func(holder string) map[string]string {
		a := map[string]string{assignment.Annotation: fmt.Sprintf(
			`{"podname":"p","nodename":"node-a","runningcontainer":{"main":{"requests":{"akri.sh/forge":1},"allocatefrom":{"akri.sh/forge/0":%q}}}}`, slot)}
		if holder != "" {
			a[assignment.HolderAnnotation] = holder
		}
		return a
	}
	for name, annotations := range map[string]map[string]string{
		"malformed": {assignment.Annotation: `{"runningcontainer":{"main":`},
		"forged":    forged(""),
		"none":      nil,
		"garbage":   {assignment.Annotation: "\x00\xff[[[["},
	} {
		p := newPod(name, "", map[string]int64{"forge": 1})
		p.Annotations, p.Spec.NodeName = annotations, nodeA
		if name == "garbage" {
			p.Annotations[assignment.Annotation] = "[[[[" // the API takes only text
		}
		r.create(p)
		r.awaitEvent(name, "Failed", name, `"main"`, "akri.sh/forge")
	}
	// A plain pod with a malformed annotation and nothing requested just runs.
	plain := newPod("plain", "", nil)
	plain.Spec.NodeName = nodeA
	plain.Annotations[assignment.Annotation] = `{"runningcontainer":{"main":`
	r.create(plain)
	r.awaitRunning("plain")

	if got := r.claims("forge"); len(got) != 0 {
		t.Errorf("forged assignments hold slots: %v", got)
	}
	// Another pod's assignment, copied, is written anew.
	p := newPod("copied", nodeA, map[string]int64{"forge": 1})
	p.Annotations = forged("some-uid")
	r.create(p)
	r.agree("copied", "forge", 1)
	// Nobody but the scheduler binds a pod with an assignment, by any door.
	r.create(newPod("unbound", "no-such-node", nil))
	binder := r.mayOnly("binder", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/binding", "bindings"}, Verbs: []string{"create"}})
	for _, path := range []string{"pods/unbound/binding", "bindings"} {
		err := binder.CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/" + r.ns + "/" + path).Body(&v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "unbound", Annotations: forged("x")}, Target: v1.ObjectReference{Kind: "Node", Name: nodeA},
		}).Do(r.ctx).Error()
		if err == nil || !strings.Contains(err.Error(), `may "assign" instances`) {
			t.Errorf("POST %s with an assignment: %v", path, err)
		}
	}
	// The real one gets the slot, and nobody moves it afterwards.
	r.create(newPod("real", nodeB, map[string]int64{"forge": 1}))
	r.agree("real", "forge", 1)
	for _, subresource := range []string{"", "status"} {
		_, err := kube.CoreV1().Pods(r.ns).Patch(r.ctx, "real", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"{}"}}}`), metav1.PatchOptions{}, strings.Fields(subresource)...)
		if err == nil || !strings.Contains(err.Error(), "cannot be changed") {
			t.Errorf("editing an assignment through pods/%s: %v", subresource, err)
		}
	}
}

// Who may update pods learns a pod's UID, and could then forge an assignment for it
// before it is bound. The policy refuses that; without it the pod holds no slots
// that it does not request.
func TestForgedWhenTheUIDIsKnown(t *testing.T) {
	testAll(t, "takes a policy out of force")
	r := newRig(t)
	instance := r.debugEcho("late", 2, nil, "late0")[0].name
	p := newPod("gated", nodeA, nil)
	p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "kubeslot.test/gate"}}
	p = r.create(p)
	forgery, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		assignment.HolderAnnotation: string(p.UID),
		assignment.Annotation: fmt.Sprintf(
			`{"nodename":%q,"runningcontainer":{"ghost":{"allocatefrom":{"akri.sh/late/0":"%s-0","akri.sh/late/1":"%[2]s-1"}}}}`, nodeA, instance)}}})
	r.check(err)
	author := r.mayOnly("author", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}})
	patch := func(body []byte, o metav1.PatchOptions) error {
		_, err := author.CoreV1().Pods(r.ns).Patch(r.ctx, "gated", types.MergePatchType, body, o)
		return err
	}
	refused := func(err error) bool { return err != nil && strings.Contains(err.Error(), "kubeslot-assignment") }
	if err := patch(forgery, metav1.PatchOptions{}); !refused(err) || !strings.Contains(err.Error(), "come with the binding") {
		t.Fatalf("forging the assignment of a gated pod: %v", err)
	}

	r.withoutPolicy("kubeslot-assignment", func() {
		r.await("the policy to be gone", func() (bool, string) {
			err := patch(forgery, metav1.PatchOptions{})
			return err == nil, fmt.Sprint(err)
		})
	})
	r.await("the policy to be back", func() (bool, string) {
		err := patch([]byte(`{"metadata":{"annotations":{"kubeslot.io/holder":"x"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return refused(err), fmt.Sprint(err)
	})
	r.check(patch([]byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}))
	if p := r.awaitRunning("gated"); p.Annotations[assignment.HolderAnnotation] != string(p.UID) {
		t.Fatalf("the forgery did not last: %v", p.Annotations)
	}
	for _, name := range []string{"one", "two"} {
		r.create(newPod(name, "", map[string]int64{"late": 1}))
		r.agree(name, "late", 1)
	}
}

// withoutPolicy takes an admission policy out of force while f runs.
func (r *rig) withoutPolicy(name string, f func()) {
	r.Helper()
	bindings := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := bindings.Get(r.ctx, name, metav1.GetOptions{})
	r.check(err)
	r.check(bindings.Delete(r.ctx, name, metav1.DeleteOptions{}))
	defer func() {
		binding.ObjectMeta = metav1.ObjectMeta{Name: name}
		_, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{})
		r.check(err)
	}()
	f()
}

// oneWithoutWebhook is held by the test that has the cluster's webhook out of force.
var oneWithoutWebhook sync.Mutex

// withoutWebhook takes the webhook of Configurations out of force while f runs, which
// stores what it would refuse: as when no controller runs.
func (r *rig) withoutWebhook(f func()) {
	r.Helper()
	oneWithoutWebhook.Lock()
	defer oneWithoutWebhook.Unlock()
	hooks := kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	hook, err := hooks.Get(r.ctx, "kubeslot-configurations", metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // deploy/ is applied without it
		f()
		return
	}
	r.check(err)
	r.check(hooks.Delete(r.ctx, hook.Name, metav1.DeleteOptions{}))
	defer func() {
		hook.ObjectMeta = metav1.ObjectMeta{Name: hook.Name}
		_, err := hooks.Create(context.Background(), hook, metav1.CreateOptions{})
		r.check(err)
	}()
	r.await("the webhook to be gone", func() (bool, string) {
		_, err := akri.AkriV0().Configurations(r.ns).Create(r.ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "refused"},
			Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho"}}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil, fmt.Sprint(err)
	})
	f()
}

func (r *rig) debugEchoUnchecked(name, handler, details string) {
	r.Helper()
	r.check(r.createConfiguration(name, akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: handler, DiscoveryDetails: details}}))
}

func (r *rig) createConfiguration(name string, spec akriv0.ConfigurationSpec) error {
	_, err := akri.AkriV0().Configurations(r.ns).Create(r.ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	return err
}

// Two pods on two nodes race for the last slot: one runs, the other waits, and
// none fails its admission.
func TestRaceForTheLastSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("last", 1, nil, "last0")
	for round := range 5 {
		names := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		created := make(chan error)
		for i, node := range []string{nodeA, nodeB} {
			go func() {
				_, err := kube.CoreV1().Pods(r.ns).Create(r.ctx, newPod(names[i], node, map[string]int64{"last": 1}), metav1.CreateOptions{})
				created <- err
			}()
		}
		r.check(<-created)
		r.check(<-created)
		var winner, loser string
		r.await("one of the two pods to run", func() (bool, string) {
			for i, name := range names {
				if p := r.pod(name); p.Status.Phase == v1.PodRunning {
					winner, loser = name, names[1-i]
					return true, ""
				}
			}
			return false, ""
		})
		r.agree(winner, "last", 1)
		r.awaitPending(loser, "0 of 1 slots free", "1 held")
		r.delete(winner)
		r.agree(loser, "last", 1)
		r.delete(loser)
	}
	r.awaitClaims("last", map[string]holding{})
	events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	if i := slices.IndexFunc(events.Items, func(e v1.Event) bool { return strings.Contains(e.Reason, "UnexpectedAdmissionError") }); i >= 0 {
		t.Errorf("a pod failed its admission: %s", events.Items[i].Message)
	}
}
