package deviceplugins

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// A pod's author may make up any number of names. No plugin is asked about more than there
// may be, and of names that no plugin knows only the first one is asked about.
func TestMadeUpNames(t *testing.T) {
	for _, test := range []struct {
		names int
		calls int // of plugins at most
		want  string
	}{
		{20_000, 0, "requests 20000 resources: a pod may request at most 100"},
		{maxNames, 10, `no device scheduler plugin answers for 1 of "made/up-00000"`},
	} {
		calls, s := 0, &story{}
		s.rig = newRig(t, host.Options{OnCall: func(string, string, time.Duration) { calls++ }}, newMoody())
		node := s.node(t, "a", "1x1", "")
		s.cache.setNode(node)
		p := widgets(t, "p", 0)
		var requests []string
		for i := range test.names {
			requests = append(requests, fmt.Sprintf(`"made/up-%05d":1`, i))
		}
		p.Annotations = map[string]string{assignment.Annotation: `{"runningcontainer":{"main":{"requests":{` + strings.Join(requests, ",") + `}}}}`}
		s.create(t, p)
		calls = 0
		state := framework.NewCycleState()
		_, status := s.PreFilter(s.ctx, state, p, nil)
		if status.IsSuccess() {
			status = s.Filter(s.ctx, state, p, frameworkNode(node))
		}
		if !strings.Contains(status.Message(), test.want) || calls > test.calls {
			t.Errorf("%d names: %v, after %d calls of plugins; want %q after at most %d", test.names, status, calls, test.want, test.calls)
		}
	}
}
