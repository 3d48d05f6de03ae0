package message

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestScheduler(t *testing.T) {
	held := `node(s) short of akri.sh/cam: container "main" needs 2, at most one slot per Instance in each container; 1 of 4 slots free on 2 Instances, 3 held`
	for name, tc := range map[string]struct {
		message string
		want    []string // nodes reason
	}{
		"nothing":         {"", nil},
		"commas in it":    {"0/3 nodes are available: 1 Insufficient cpu, 2 " + held + ".", []string{"1 InsufficientResource", "2 SlotsHeld"}},
		"own in it":       {"0/2 nodes are available: 2 " + held + ", and this pod's other requests take 1.", []string{"2 SlotsHeld"}},
		"then preemption": {"0/2 nodes are available: 2 " + held + ". preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod., no pods of lower priority hold slots that would help", []string{"2 SlotsHeld", "0 NoLowerPriority"}},
		"DRA first":       {"0/2 nodes are available: 2 " + held + ". no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod., no pods of lower priority hold slots that would help", []string{"2 SlotsHeld", "0 NoLowerPriority"}},
		"no device yet":   {`0/2 nodes are available: no node reaches an Instance for akri.sh/cam, requested by container "main"; kubectl describe configuration -n default cam says what keeps nodes from finding one. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.`, []string{"0 NoDevice"}},
		"ours alone":      {"0/2 nodes are available: 2 " + held + ". not eligible for slot preemption: preemptionPolicy is Never", []string{"2 SlotsHeld", "0 PreemptionNever"}},
		"at PreFilter":    {`0/2 nodes are available: container "main" requests akri.sh/cams, but there is no Configuration or Instance "cams". preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.`, []string{"0 NoSuchResource"}},
		"a near name": {`0/2 nodes are available: container "main" requests akri.sh/cams, but there is no Configuration or Instance "cams"; did you mean "cam"?. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.`,
			[]string{"0 NoSuchResource"}},
		"unknown ones": {"0/3 nodes are available: 1 moon, full, and 2 stars, 2 Too many pods.",
			[]string{"1 Other", "2 TooManyPods"}},
		"an odd number": {"0/99999999999999999999 nodes are available: 99999999999999999999 Too many pods.",
			[]string{"9223372036854775807 TooManyPods"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range Scheduler(tc.message) {
				got = append(got, fmt.Sprintf("%d %s", p.Nodes, p.Reason))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Scheduler(%q) (-want +got):\n%s", tc.message, diff)
			}
		})
	}
	fields := Scheduler("0/2 nodes are available: 2 " + held + ".")[0].Fields
	if fields["resource"] != "akri.sh/cam" || fields["container"] != "main" {
		t.Errorf("the fields are %v", fields)
	}
}

// Whatever somebody writes into a status, it is taken apart to the end.
func FuzzScheduler(f *testing.F) {
	f.Add("0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods. preemption: x")
	f.Add(`kubecri does not start container "main" of pod a/b without its devices: `)
	f.Add("0/1 nodes are available: 1 , 2 , . , 3 .")
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range Scheduler(text) {
			if p.Reason == "" {
				t.Errorf("Scheduler(%q) has a part without a reason", text)
			}
		}
		if m := Kubelet(text, text); m.Reason == "" {
			t.Errorf("Kubelet(%q) has no reason", text)
		}
		if long := Scheduler(strings.Repeat(text, 3)); len(long) > len(text)*3+1 {
			t.Errorf("Scheduler makes %d parts of %d bytes", len(long), 3*len(text))
		}
	})
}
