package binding

import (
	"fmt"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// The log says at the default verbosity what each container of a pod was assigned, once
// it is bound and not before.
func TestAssignmentIsLogged(t *testing.T) {
	for _, test := range []struct {
		answer error // of the API server
		want   string
	}{
		{nil, "Assigned devices pod default/p podUID p-uid container main node a slots [cam-1-0] devices [gpu/b]\n" +
			"Assigned devices pod default/p podUID p-uid container warm node a devices [gpu/a]\n"},
		{errForbidden, ""},
	} {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		pod := newPod("")
		binder(answering(test.answer), nil).Bind(klog.NewContext(t.Context(), logger), contributed(t, pod), pod, "a")
		log := ""
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			log += fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)
		}
		if log != test.want {
			t.Errorf("when the API server answers %v, the log is\n%s\nwant\n%s", test.answer, log, test.want)
		}
	}
}
