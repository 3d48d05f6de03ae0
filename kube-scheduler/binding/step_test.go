package binding

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// step notes what is done with it.
type step struct {
	answer *fwk.Status
	log    *[]string
}

func (s step) Do(context.Context) *fwk.Status {
	*s.log = append(*s.log, "do")
	return s.answer
}

func (s step) Undo(context.Context) { *s.log = append(*s.log, "undo") }

// The step comes before the Binding, and is taken back when the pod is not bound. Of a plugin that
// withdrew or contributed again, as in a gang that is tried twice, nothing of before is done or sent.
func TestWhatIsDoneAndSent(t *testing.T) {
	for name, test := range map[string]struct {
		step   *fwk.Status // what it answers
		change func(fwk.CycleState, *v1.Pod)
		node   string // to bind to
		answer error  // of the API server
		want   string
		code   fwk.Code
		reason string
	}{
		"bound": {node: "a", want: "do, bind a cam-1-0 gpu/a gpu/b"},
		"not bound": {node: "a", answer: errForbidden, want: "do, bind a cam-1-0 gpu/a gpu/b, undo",
			code: fwk.Error, reason: "quota"},
		"the step refuses": {node: "a", step: fwk.NewStatus(fwk.Unschedulable, "held by another"),
			want: "do", code: fwk.Unschedulable, reason: "held by another"},
		"the step fails": {node: "a", step: fwk.AsStatus(errors.New("slot cam-1-0 is gone")),
			want: "do", code: fwk.Error, reason: "not bound to node a: slot cam-1-0 is gone"},
		"withdrawn": {node: "a", change: func(state fwk.CycleState, _ *v1.Pod) { Withdraw(state) }, code: fwk.Skip},
		"withdrawn, and one contributed again": {node: "a", change: func(state fwk.CycleState, pod *v1.Pod) {
			Withdraw(state)
			_ = none.Contribute(state, pod, "a", "Slots", slots(), nil)
		}, want: "bind a cam-1-0"},
		"one has no part any more": {node: "a", change: func(state fwk.CycleState, pod *v1.Pod) {
			_ = none.Contribute(state, pod, "a", "Devices", nil, nil)
		}, want: "do, bind a cam-1-0"},
		"one contributed again": {node: "a", change: func(state fwk.CycleState, pod *v1.Pod) {
			_ = none.Contribute(state, pod, "a", "Slots", slots(),
				step{fwk.NewStatus(fwk.Unschedulable), new([]string)})
		}, code: fwk.Unschedulable},
		"one contributed for another node": {node: "b", change: func(state fwk.CycleState, pod *v1.Pod) {
			_ = none.Contribute(state, pod, "b", "Slots", slots(), nil)
		}, want: "bind b cam-1-0"},
		"to another node than chosen": {node: "b", code: fwk.Error, reason: "chosen on node a"},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			client, pod, state := fake.NewClientset(), newPod(""), framework.NewCycleState()
			client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
				entry := "bind " + b.Target.Name
				for _, device := range []string{"cam-1-0", "gpu/a", "gpu/b"} {
					if strings.Contains(b.Annotations[assignment.Annotation], device) {
						entry += " " + device
					}
				}
				log = append(log, entry)
				return true, nil, test.answer
			})
			if err := errors.Join(none.Contribute(state, pod, "a", "Slots", slots(), step{test.step, &log}),
				none.Contribute(state, pod, "a", "Devices", gpus(), nil)); err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(state, pod)
			}
			status := binder(client, nil).Bind(t.Context(), state, pod, test.node)
			if got := strings.Join(log, ", "); got != test.want || status.Code() != test.code ||
				!strings.Contains(status.Message(), test.reason) {
				t.Errorf("%s: %v, want %s: %v with %q", got, status, test.want, test.code, test.reason)
			}
		})
	}
}
