package binding

import (
	"fmt"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// The log has at verbosity 2 what each container of a pod was assigned, once it is bound and not
// before. At the default verbosity it has no line a pod.
func TestAssignmentIsLogged(t *testing.T) {
	for _, test := range []struct {
		verbosity int
		answer    error // of the API server
		want      string
	}{
		{2, nil, "Assigned devices pod default/p podUID p-uid container main node a slots [cam-1-0] devices [gpu/b]\n" +
			"Assigned devices pod default/p podUID p-uid container warm node a devices [gpu/a]\n"},
		{2, errForbidden, ""},
		{0, nil, ""},
	} {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true),
			ktesting.Verbosity(test.verbosity)))
		pod := newPod("")
		binder(answering(test.answer), nil).Bind(klog.NewContext(t.Context(), logger), contributed(t, pod), pod, "a")
		log := ""
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			log += fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)
		}
		if log != test.want {
			t.Errorf("verbosity %d, the API server answers %v: the log is\n%s\nwant\n%s", test.verbosity, test.answer,
				log, test.want)
		}
	}
}
