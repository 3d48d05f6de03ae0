package brokers

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
)

var (
	theKey           = types.NamespacedName{Namespace: "default", Name: instanceName}
	theConfiguration = types.NamespacedName{Namespace: "default", Name: "cam"}
	errWhy           = errors.New("why")
)

func TestLifeOfBrokers(t *testing.T) {
	r := newRig(t, theInstance())
	expect := func(what string, writes ...string) {
		t.Helper()
		if got := r.settle(); !slices.Equal(got, writes) {
			t.Errorf("%s: writes %q, want %q", what, got, writes)
		}
	}
	expect("nothing")
	r.inv.SetConfiguration(configuration(2, onePod))
	r.found("a", "b", "c")
	expect("found", "create Pod a-pod", "create Pod b-pod")
	if s := r.sum(); s.Desired != 2 || s.Ready != 2 || s.Expected != 1 || s.Problem != nil {
		t.Errorf("found: %+v", s)
	}
	expect("nothing new")
	r.inv.SetConfiguration(changedSpec())
	expect("another image: one node after the other", "delete Pod a-pod", "create Pod a-pod", "delete Pod b-pod", "create Pod b-pod")
	r.inv.SetNode("a", inventory.Node{UID: "a"})
	expect("node a is not Ready", "create Pod c-pod")
	if s := r.sum(); s.Desired != 2 || s.Ready != 2 {
		t.Errorf("moved: %+v", s)
	}
	r.inv.SetNode("a", inventory.Node{UID: "a", Ready: true})
	if got := r.settle(); len(got) != 1 || !strings.HasPrefix(got[0], "delete Pod ") {
		t.Errorf("node a is Ready again: %q", got)
	}
	r.inv.SetConfiguration(configuration(2, ""))
	if got := r.settle(); len(got) != 2 || len(r.pods()) != 0 {
		t.Errorf("no broker: %q", got)
	}
	r.inv.SetConfiguration(jobConfiguration(4, jobSpec))
	expect("a Job instead", "create Job cam-8120fe-4-job", "patch Instance cam-8120fe", "patch Job cam-8120fe-4-job")
	r.inv.SetConfiguration(configuration(1, onePod))
	expect("a pod again", "create Pod b-pod", "patch Instance cam-8120fe", "delete Job cam-8120fe-4-job")
	if told := r.told(); told != "" {
		t.Errorf("tells %s", told)
	}
	r.inv.DeleteConfiguration("default", "cam")
	expect("its Configuration is gone: the garbage collector sees to it")
	if s := r.sum(); s != (Sum{}) || len(r.specs.parsed)+len(r.rollout.of) != 0 {
		t.Errorf("gone: %+v, %v, %v", s, r.specs.parsed, r.rollout.of)
	}
	instance := theInstance()
	if err := r.api.Delete(t.Context(), instance, client.Preconditions{UID: &instance.UID}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reconcile(); err != nil {
		t.Error(err)
	}
	if len(r.memories)+len(r.Reconciler.told)+len(r.uids) != 0 {
		t.Errorf("remembers %v, %v, %v", r.memories, r.Reconciler.told, r.uids)
	}
}

// Other properties of a device replace its brokers on one node after the other, though
// their spec is the same.
func TestOtherPropertiesRollOut(t *testing.T) {
	r := newRig(t, theInstance())
	r.inv.SetConfiguration(configuration(3, onePod))
	r.found("a", "b", "c")
	r.settle()
	for round, value := range []string{"other", "third"} {
		r.properties = map[string]string{"K": value}
		r.found("a", "b", "c")
		var want []string
		for _, node := range []string{"a", "b", "c"} {
			want = append(want, "patch Instance "+instanceName, "delete Pod "+node+"-pod", "create Pod "+node+"-pod")
		}
		if got := r.settle(); !slices.Equal(got, want) {
			t.Errorf("round %d: writes %q, want %q", round, got, want)
		}
	}
}

// Each write may fail, or be done and its answer lost, and the controller may be
// killed there: it ends up where an undisturbed one does. With -short each fifth.
func TestEachWriteMayFail(t *testing.T) {
	steps := []func(*rig){
		func(r *rig) { r.inv.SetConfiguration(configuration(2, onePod)); r.found("a", "b", "c") },
		func(r *rig) { r.inv.SetConfiguration(changedSpec()) },
		func(r *rig) { r.run(corev1.PodFailed) },
		func(r *rig) { r.inv.SetNode("b", inventory.Node{UID: "b"}) },
		func(r *rig) {
			c := changedSpec()
			c.Spec.Capacity, c.Generation = 1, 3
			r.inv.SetConfiguration(c)
			r.inv.SetNode("b", inventory.Node{UID: "b", Ready: true})
		},
		func(r *rig) { r.inv.SetConfiguration(jobConfiguration(4, jobSpec)) },
		func(r *rig) {
			r.inv.SetConfiguration(jobConfiguration(5, strings.Replace(jobSpec, `"b"`, `"c"`, 1)))
		},
		func(r *rig) { c := configuration(1, ""); c.Generation = 6; r.inv.SetConfiguration(c) },
	}
	play := func(t *testing.T, disturb func(*rig)) (states [][]string, writes int) {
		r := newRig(t, theInstance())
		disturb(r)
		for _, step := range steps {
			step(r)
			r.settle()
			writes += len(r.writes)
			states = append(states, r.state())
		}
		return states, writes
	}
	want, writes := play(t, func(*rig) {})
	if writes < 12 {
		t.Fatalf("the story has only %d writes", writes)
	}
	every := 1
	if testing.Short() {
		every = 5
	}
	for at := 0; at < writes; at += every {
		for _, lost := range []bool{false, true} {
			for _, killed := range []bool{false, true} {
				got, _ := play(t, func(r *rig) {
					n := 0
					disturb := func(string) bool {
						if n++; n-1 != at {
							return false
						}
						if killed {
							r.restart()
						}
						return true
					}
					if lost {
						r.lose = disturb
						return
					}
					r.refuse = func(write string) error {
						if disturb(write) {
							return apierrors.NewInternalError(errWhy)
						}
						return nil
					}
				})
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("write %d, its answer lost %v, killed %v (-undisturbed +disturbed):\n%s", at, lost, killed, d)
				}
			}
		}
	}
}

func TestFailuresAreCounted(t *testing.T) {
	r := newRig(t, theInstance())
	r.inv.SetConfiguration(configuration(1, onePod))
	r.found("a")
	r.settle()
	for failures, restart := range []bool{false, true, false, true} {
		r.run(corev1.PodFailed)
		if restart {
			r.restart()
		}
		result, err := r.reconcile()
		if want := delay(failures+1, maxDelay); err != nil || result.RequeueAfter > want || result.RequeueAfter < want/2 {
			t.Fatalf("failure %d: %+v, %v, want after %s", failures+1, result, err, want)
		}
		r.settle()
		if n := failuresBefore(&r.pods()[0]); n != failures+1 {
			t.Errorf("the successor counts %d failures, want %d", n, failures+1)
		}
	}
	if told := r.told(); strings.Count(told, "BrokerEnded") < 4 {
		t.Errorf("tells %s", told)
	}
}

func TestRefusedBrokers(t *testing.T) {
	quota := apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota"))
	r := newRig(t, theInstance())
	r.inv.SetConfiguration(configuration(2, onePod))
	r.found("a", "b")
	r.refuse = func(string) error { return quota }
	tries := 0
	for begin := r.clock.Now(); r.clock.Since(begin) < 10*time.Minute; tries++ {
		result, err := r.reconcile()
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > maxRefusedDelay {
			t.Fatalf("%+v, %v", result, err)
		}
		r.clock.SetTime(r.clock.Now().Add(result.RequeueAfter / 2))
		if result, err := r.reconcile(); err != nil || result.RequeueAfter <= 0 || r.sum().Problem == nil { // something else changes
			t.Fatalf("before the next try: %+v, %v, %+v", result, err, r.sum())
		}
		r.clock.SetTime(r.clock.Now().Add(result.RequeueAfter / 2))
	}
	if tries > 18 || len(r.writes) > tries {
		t.Errorf("%d looks and %d tries to create in 10 minutes", tries, len(r.writes))
	}
	if told := r.told(); strings.Count(told, NotCreated) != 1 || !strings.Contains(told, "exceeded quota") {
		t.Errorf("tells %q", told)
	}
	if s := r.sum(); s.Problem == nil || s.Problem.Reason != NotCreated || s.With != 1 || s.FirstWith != instanceName {
		t.Errorf("%+v", s)
	}
	r.refuse = nil
	if got := r.settle(); len(got) != 2 || r.sum().Problem != nil {
		t.Errorf("once there is room: %q, %+v", got, r.sum())
	}
	r = newRig(t, theInstance())
	r.inv.SetConfiguration(jobConfiguration(1, jobSpec))
	r.found("a")
	r.refuse = func(string) error { return quota }
	for range 2 {
		if result, err := r.reconcile(); err != nil || result.RequeueAfter <= 0 || r.sum().Problem == nil || r.sum().Problem.Reason != NotCreated {
			t.Errorf("a Job: %+v, %v, %+v", result, err, r.sum())
		}
	}
	if told := r.told(); strings.Count(told, NotCreated) != 1 || len(r.writes) != 1 {
		t.Errorf("a Job: tells %q, writes %q", told, r.writes)
	}
	r.refuse = nil
	if got := r.settle(); len(got) != 3 || r.sum().Problem != nil {
		t.Errorf("a Job, once there is room: %q, %+v", got, r.sum())
	}
	terminating := apierrors.NewForbidden(corev1.Resource("pods"), "x", errWhy)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	r = newRig(t, theInstance())
	r.inv.SetConfiguration(configuration(2, onePod))
	r.found("a", "b")
	r.refuse = func(string) error { return terminating }
	if result, err := r.reconcile(); err != nil || result.RequeueAfter != 0 || r.told() != "" || len(r.writes) != 1 {
		t.Errorf("the namespace is going: %+v, %v, writes %q, want one try", result, err, r.writes)
	}
	r = newRig(t, theInstance())
	r.inv.SetConfiguration(jobConfiguration(1, jobSpec))
	r.found("a")
	r.refuse = func(string) error { return terminating }
	if result, err := r.reconcile(); err != nil || result.RequeueAfter != 0 || r.told() != "" || len(r.writes) != 1 {
		t.Errorf("a Job, as the namespace is going: %+v, %v, writes %q, want one try, of which nothing is noted",
			result, err, r.writes)
	}
}

// A pod of the name that is not the Instance's is left alone.
func TestNameIsTaken(t *testing.T) {
	name := naming.Pod(instanceName, "a", true)
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	formers := stranger.DeepCopy()
	formers.OwnerReferences = []metav1.OwnerReference{{APIVersion: "akri.sh/v0", Kind: "Instance", Name: instanceName, UID: "former", Controller: new(true)}}
	foreign := formers.DeepCopy()
	foreign.OwnerReferences[0].APIVersion = "example.com/v1"
	unlabelled := stranger.DeepCopy()
	unlabelled.OwnerReferences = []metav1.OwnerReference{naming.OwnedBy(instanceKind, theInstance())}
	lost := func(label string) *corev1.Pod {
		p := unlabelled.DeepCopy()
		p.Labels = naming.PodLabels("cam", instanceName, "a", name)
		delete(p.Labels, label)
		return p
	}
	for what, tc := range map[string]struct {
		there   *corev1.Pod
		problem bool
	}{"a stranger's": {stranger, true}, "a former Instance's": {formers, false}, "another system's Instance's": {foreign, true}, "our unlabelled": {unlabelled, true},
		"our own, without its Instance,": {lost(naming.Instance), true}} {
		r := newRig(t, theInstance(), tc.there)
		r.inv.SetConfiguration(configuration(1, onePod))
		r.found("a")
		result, err := r.reconcile()
		if err != nil || result.RequeueAfter == 0 || (r.sum().Problem != nil) != tc.problem || strings.Contains(r.told(), NameTaken) != tc.problem {
			t.Errorf("%s: %+v, %v, %+v", what, result, err, r.sum())
		}
		if s := r.sum(); tc.there.OwnerReferences != nil && tc.there != foreign && tc.problem && s.Problem != nil && !strings.Contains(s.Problem.Message, "akri.sh/instance="+instanceName+": put them back, or delete it") {
			t.Errorf("%s: the problem %v does not say what to do", what, s.Problem)
		}
		if pods := r.pods(); len(pods) != 1 || !maps.Equal(pods[0].Labels, tc.there.Labels) {
			t.Errorf("%s pod was touched: %v", what, pods)
		}
	}
}

// A name that is taken on one node keeps no other from its broker. That of a former Instance's pod, which is going,
// costs no request before it is gone.
func TestNameIsTakenOnOneNode(t *testing.T) {
	f := newFacts(t, configuration(2, onePod), "a b")
	stranger := brokerPod("a", "Ready")(f)
	stranger.OwnerReferences = nil
	former := brokerPod("a", "Ready")(f)
	former.OwnerReferences[0].UID = "former"
	for what, tc := range map[string]struct {
		there   *corev1.Pod
		first   []string
		problem bool
	}{
		"a stranger's":        {stranger, []string{"create Pod a-pod", "create Pod b-pod"}, true},
		"a former Instance's": {former, []string{"create Pod b-pod"}, false},
	} {
		r := newRig(t, theInstance(), tc.there)
		r.inv.SetConfiguration(configuration(2, onePod))
		r.found("a", "b")
		result, err := r.reconcile()
		if err != nil || !slices.Equal(r.writes, tc.first) || (r.sum().Problem != nil) != tc.problem ||
			(result.RequeueAfter > 0) != tc.problem {
			t.Errorf("%s: %q, %+v, %v, %+v", what, r.writes, result, err, r.sum().Problem)
		}
		if err := r.fake.Delete(t.Context(), tc.there); err != nil {
			t.Fatal(err)
		}
		if r.settle(); len(r.pods()) != 2 || r.sum().Problem != nil {
			t.Errorf("%s, gone: %d pods, %+v", what, len(r.pods()), r.sum().Problem)
		}
	}
}

// What is noted twice in a round is as it was noted last.
func TestNotedTwice(t *testing.T) {
	i := theInstance()
	i.Annotations = map[string]string{naming.Failures: "before"}
	r := newRig(t, i)
	f := &facts{instance: i}
	for _, text := range []string{"other", "before"} {
		if err := r.annotate(t.Context(), f, naming.Failures, text); err != nil {
			t.Fatal(err)
		}
	}
	if state := r.state(); !strings.Contains(state[0], naming.Failures+":before") {
		t.Errorf("%q", state)
	}
}

// Akri's pods are taken over as they are, once kubecri runs on all their nodes, and
// replaced when the spec changes.
func TestTakeOver(t *testing.T) {
	f := newFacts(t, configuration(2, onePod), "a b")
	i := theInstance()
	i.Spec.Nodes = []string{"a", "b"}
	r := newRig(t, i, brokerPod("a", "Ready", akris)(f), brokerPod("b", "Ready", akris)(f))
	r.inv.SetConfiguration(configuration(2, onePod))
	untouched := func(when string) {
		t.Helper()
		if result, err := r.reconcile(); err != nil || result.RequeueAfter == 0 || len(r.writes) > 0 {
			t.Errorf("%s: %q, %+v, %v", when, r.writes, result, err)
		}
	}
	r.inv.SetNode("a", inventory.Node{UID: "a", Ready: true})
	r.inv.SetNode("b", inventory.Node{UID: "b", Ready: true})
	untouched("kubecri runs nowhere")
	r.found("a")
	untouched("kubecri does not run on b")
	r.found("b")
	if got := r.settle(); !slices.Equal(got, []string{"patch Pod a-pod", "patch Pod b-pod"}) {
		t.Errorf("taken over with %q", got)
	}
	r.inv.SetConfiguration(changedSpec())
	if got := r.settle(); len(got) != 4 {
		t.Errorf("another spec: %q", got)
	}
}

func TestEventsOfConfigurations(t *testing.T) {
	for spec, want := range map[string]string{
		`{"containers":[{"name":"b","image":"i"}]}`:  "BrokerWithoutDevice",
		`{"containers":[{"name":"b","imagee":"i"}]}`: `InvalidBrokerSpec spec.brokerSpec.brokerPodSpec: unknown field "containers[0].imagee"`,
	} {
		r := newRig(t, theInstance())
		r.inv.SetConfiguration(configuration(1, spec))
		r.found("a")
		r.settle()
		r.settle()
		if told := r.told(); strings.Count(told, "Warning") != 1 || !strings.Contains(told, want) {
			t.Errorf("%s: tells %q, want %q once", spec, told, want)
		}
	}
}
