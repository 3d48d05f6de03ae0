package command

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// heldByNobody is a story with a claim of a node that is not Ready, whose pod is gone.
func heldByNobody() *story {
	s := newStory()
	s.set("node/off", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "off"}})
	s.set("claim/cam-f30c78-0", &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cam-f30c78-0", UID: "first"}, Spec: v1alpha1.SlotClaimSpec{
		NodeName: "off", Container: "main", Holder: "dead", Pod: &v1alpha1.PodReference{Namespace: "default", Name: "dead", UID: "dead"}}})
	return s
}

// An interrupt at the question ends the command, and nothing is released.
func TestReleaseInterrupted(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	s := heldByNobody()
	o, _, _ := s.options("")
	in, typed := io.Pipe()
	defer typed.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	o.terminal, o.streams.In, o.streams.Out = func() bool { return true }, in, writer(func([]byte) { interrupt() })
	root := newRoot(o)
	root.SetArgs([]string{"release", "cam-f30c78-0"})
	ran, err := root.ExecuteContextC(ctx)
	if code := o.exitCode(ctx, ran.Name(), err); code != interrupted {
		t.Errorf("it exits with %d: %v, want %d", code, err, interrupted)
	}
	if s.objects["claim/cam-f30c78-0"] == nil {
		t.Error("the slot was released")
	}
}

// A node's message is one line of what people decide by.
func TestReleaseSaysItInLines(t *testing.T) {
	r := &releasing{options: &options{now: time.Now}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "off"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
			Message: "off\n  The pod is gone.\x1b[2A"}}}}
	claim := heldByNobody().objects["claim/cam-f30c78-0"].(*v1alpha1.SlotClaim)
	text := r.describe(&source.Claimed{Node: node, Claim: claim,
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dead"}, Spec: corev1.PodSpec{NodeName: "off"}}})
	if strings.Contains(text, "\n  The pod is gone") || strings.Contains(text, "\x1b") ||
		!strings.Contains(text, "\n  The pod is there") {
		t.Errorf("it says\n%s", text)
	}
}

type writer func(text []byte)

func (w writer) Write(text []byte) (int, error) {
	w(text)
	return len(text), nil
}

// It waits for the node as long as it says, and sees what the node does meanwhile.
func TestReleaseWaitsForTheNode(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	for name, tc := range map[string]struct {
		after time.Duration // until the node makes the claim again; 0 for never
		wrong bool
		took  time.Duration
	}{
		"it says nothing":      {took: patience},
		"it makes the claim":   {after: 2 * time.Second, wrong: true, took: 2 * time.Second},
		"it makes it too late": {after: patience + time.Second, took: patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := heldByNobody()
				o, _, _ := s.options("")
				o.patience = patience
				from := o.connected
				c, err := from.Claimed(t.Context(), "cam-f30c78-0")
				if err != nil {
					t.Fatal(err)
				}
				if err := from.Release(t.Context(), c.Claim); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if tc.after > 0 {
					time.AfterFunc(tc.after, func() {
						again := c.Claim.DeepCopy()
						again.UID, again.Spec.MadeAgain = "second", true
						if err := s.tracker.Add(again); err != nil {
							t.Error(err)
						}
					})
				}
				r := &releasing{options: o, from: from}
				problems := r.outcomes(t.Context(), []*source.Claimed{c})
				if (len(problems) > 0) != tc.wrong {
					t.Errorf("it says %q, want a problem: %v", problems, tc.wrong)
				}
				if took := time.Since(began); took < tc.took || took > tc.took+time.Second {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
			})
		})
	}
}
