package claims

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubeslot/kubeslot/test/await"
)

// A claim that is made or released is a line of the log, at the default verbosity, with
// slot, pod and container.
func TestClaimsAreLogged(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx := klog.NewContext(t.Context(), logger)
	f := start(t, newAPI(t, 2, nil), &fakeRuntime{}, setup{})
	taken, err := f.Take(ctx, request(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-1"))
	if err != nil {
		t.Fatal(err)
	}
	f.runtime.add(t, "c1", "u1", "cam", "cam-a1-0", "cam", "cam-a1-1")
	taken.Created("c1")
	name := mustSlot(t, "cam-a1-1")
	if err := f.apply(ctx, view{slot: name, claim: f.store.get(name)}, &decision{remove: true}); err != nil {
		t.Fatal(err)
	}
	log := ""
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		log += fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)
	}
	for _, want := range []string{
		"Claimed slots pod ns/pod-u1 container main slots [cam-a1-0 cam-a1-1]\n",
		"Released a slot slot cam-a1-1 pod ns/pod-u1 container main\n",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// What cannot be written while the API server is away is one line of the log, however often it is tried: a node may
// have thousands of slots, and an outage takes hours.
func TestAnOutageIsOneLineForEachSlot(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	a := newAPI(t, 1, nil)
	f := start(t, a, &fakeRuntime{}, setup{logger: &logger})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	a.set(away)
	f.remove("c1")
	await.That(t, "several tries", func() bool { return f.queue.NumRequeues(mustSlot(t, "cam-a1-0")) > 3 })
	a.set(nil)
	f.want(t, "cam-a1-0", "")
	f.kill()
	lines := 0
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if strings.Contains(entry.Message, "trying again") {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines, want one", lines)
	}
}
