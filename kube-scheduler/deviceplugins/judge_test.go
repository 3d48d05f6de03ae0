package deviceplugins

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// A pod's author may make up any number of names. No plugin is asked about more than there
// may be, and of names that no plugin knows only the first one is asked about.
func TestMadeUpNames(t *testing.T) {
	for _, test := range []struct {
		names int
		calls int64 // of plugins at most
		want  string
	}{
		{20_000, 0, "requests 20000 resources: a pod may request at most 100"},
		{maxNames, 10, `no device scheduler plugin answers for 1 of "made/up-00000"`},
	} {
		r := newRig(t, newMoody())
		node := r.addNode(t, "a", "1x1")
		p := widgets(t, "p", 0)
		var requests []string
		for i := range test.names {
			requests = append(requests, fmt.Sprintf(`"made/up-%05d":1`, i))
		}
		p.Annotations = map[string]string{assignment.Annotation: `{"runningcontainer":{"main":{"requests":{` + strings.Join(requests, ",") + `}}}}`}
		r.create(t, p)
		before, state := r.calls.Load(), framework.NewCycleState()
		_, status := r.PreFilter(r.ctx, state, p, nil)
		if status.IsSuccess() {
			status = r.Filter(r.ctx, state, p, frameworkNode(node))
		}
		calls := r.calls.Load() - before
		if !strings.Contains(status.Message(), test.want) || calls > test.calls {
			t.Errorf("%d names: %v, after %d calls of plugins; want %q after at most %d", test.names, status, calls, test.want, test.calls)
		}
	}
}

// eager answers for any name: its score is what the pod requests in all.
type eager struct{ *moody }

func (e eager) PodFitsDevice(_ *types.NodeInfo, p *types.PodInfo, _ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	score := 0.0
	for _, c := range p.RunningContainers {
		for _, n := range c.Requests {
			score += float64(n)
		}
	}
	return true, nil, score
}

// That a plugin answers for a name is found out once. So many names are remembered, those
// asked for last, and no more: there are plugins that answer for any.
func TestKnownNamesAreRemembered(t *testing.T) {
	r := newRig(t, eager{newMoody()})
	r.addNode(t, "a", "1x1")
	n := r.cache.host.Node("a")
	asking := func(name string) (known bool, calls int64) {
		req, err := requestOf(written(t, "p", "", name, 1))
		if err != nil {
			t.Fatal(err)
		}
		before := r.calls.Load()
		known = r.cache.recognizes(n, req, req.asked[0])
		return known, r.calls.Load() - before
	}
	for i := range 2 {
		if known, asked := asking("made/up"); !known || (asked > 0) != (i == 0) {
			t.Errorf("time %d: recognized is %t, after %d calls of plugins; want true, and calls the first time alone", i, known, asked)
		}
	}
	for i := range maxRecognized {
		asking(fmt.Sprint("made/up-", i))
		if i%100 == 0 {
			asking("made/up")
		}
	}
	if n := r.cache.recognized.Len(); n != maxRecognized {
		t.Errorf("%d names are remembered, want %d", n, maxRecognized)
	}
	if _, asked := asking("made/up"); asked != 0 {
		t.Errorf("a name in use was forgotten: %d calls of plugins", asked)
	}
}
