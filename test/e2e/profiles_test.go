package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/history"
)

// profile is one of a KubeSchedulerConfiguration, with arguments for our plugin.
func profile(schedulerName string, args map[string]any) any {
	return map[string]any{"schedulerName": schedulerName, "pluginConfig": []any{
		map[string]any{"name": "ConfigurationResources", "args": args}}}
}

// profiles gives the scheduler these and no others, until the test ends.
func (r *rig) profiles(profiles ...any) {
	r.Helper()
	file := shared.SchedulerConfig()
	before, err := os.ReadFile(file)
	r.check(err)
	r.Cleanup(func() {
		r.check(os.WriteFile(file, before, 0o600))
		r.restartScheduler()
	})
	config := map[string]any{}
	r.check(yaml.Unmarshal(before, &config))
	config["profiles"] = profiles
	text, err := yaml.Marshal(config)
	r.check(err)
	r.check(os.WriteFile(file, text, 0o600))
	r.restartScheduler()
}

// Two profiles of one scheduler give out the same slots, each by its own strategy,
// from one ledger: what one has just chosen, before the API shows it, the other knows.
func TestTwoProfiles(t *testing.T) {
	testAll(t, "restarts the scheduler")
	r := newRig(t)
	recorder, err := history.Record(r.ctx, kube, akri, r.ns)
	r.check(err)
	r.debugEcho("prof", 4, nil, "prof0", "prof1")
	const spreading, packing = v1.DefaultSchedulerName, "packing"
	r.profiles(profile(spreading, map[string]any{"strategy": "Spread"}), profile(packing, map[string]any{"strategy": "Pack"}))
	create := func(name, scheduler string) {
		t.Helper()
		p := newPod(name, "", map[string]int64{"prof": 1})
		p.Spec.SchedulerName = scheduler
		r.create(p)
	}
	instanceOf := func(name string) string {
		t.Helper()
		slot := r.agree(name, "prof", 1)[0]
		return slot[:strings.LastIndex(slot, "-")]
	}
	create("first", spreading)
	first := instanceOf("first")
	create("packed", packing)
	if got := instanceOf("packed"); got != first {
		t.Errorf("Pack took from %s, where nothing was held, instead of %s", got, first)
	}
	create("spread", spreading)
	if got := instanceOf("spread"); got == first {
		t.Errorf("Spread took a third slot of %s, and the other has none held", first)
	}
	// Five slots are left. The scheduler is stopped while the pods for them come, so
	// that no profile can have read from the API what the other has just chosen.
	r.check(shared.Kill(cluster.Scheduler, "", syscall.SIGSTOP))
	for i := range 5 {
		create(fmt.Sprint("p", i), []string{spreading, packing}[i%2])
	}
	r.check(shared.Kill(cluster.Scheduler, "", syscall.SIGCONT))
	r.await("all eight pods to be bound", func() (bool, string) {
		events, err := recorder.Events(r.ctx)
		r.check(err)
		report := history.Check(events, history.Rules{})
		if report.Doubles > 0 { // one of the two pods will be gone
			r.Fatalf("the profiles gave slots twice: %s", strings.Join(report.Violations, "; "))
		}
		return report.Bound == 8, fmt.Sprint(report.Bound, " are")
	})
	for i := range 5 {
		r.agree(fmt.Sprint("p", i), "prof", 1)
	}
	create("waiter", packing)
	r.awaitPending("waiter", "0 of 8 slots free", "8 held")
	r.delete("first") // of the other profile
	r.logWait(recorder, "first", "waiter", r.agree("waiter", "prof", 1)[0])
	r.ledgersAgree("prof")
	r.judge(recorder, history.Rules{})
}
