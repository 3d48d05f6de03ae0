package binding

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// The log says at the default verbosity what each container of a pod was assigned, once
// it is bound and not before.
func TestAssignmentIsLogged(t *testing.T) {
	for name, refusal := range map[string]error{"bound": nil, "refused": errForbidden} {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		pod := newPod("")
		state := contributed(t, pod)
		binder(answering(refusal), nil).Bind(klog.NewContext(t.Context(), logger), state, pod, "a")
		log := ""
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			log += fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)
		}
		want := ""
		for container, g := range read(state).given() {
			line := fmt.Sprintf("Assigned devices pod %s podUID %s container %s node a", klog.KObj(pod), pod.UID, container)
			if len(g.slots) > 0 {
				line += fmt.Sprint(" slots ", g.slots)
			}
			if len(g.devices) > 0 {
				line += fmt.Sprint(" devices ", g.devices)
			}
			if refusal == nil && !strings.Contains(log, line+"\n") {
				t.Errorf("%s: the log lacks %q:\n%s", name, line, log)
			}
			want += line
		}
		if !strings.Contains(want, "cam-") || !strings.Contains(want, "gpu") {
			t.Errorf("nothing of both plugins was given: %q", want)
		}
		if refusal != nil && strings.Contains(log, "Assigned") {
			t.Errorf("%s: the log has %q", name, log)
		}
	}
}
