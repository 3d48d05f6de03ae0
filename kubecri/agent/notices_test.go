package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := 0
		n := newNotices(func() { woken++ })
		var given []string
		add := func(reason, text string) {
			n.add(noticeKind{configuration: "cam", reason: reason}, func(times int) {
				given = append(given, fmt.Sprint(text, repeated(times)))
			})
		}
		want := func(next time.Duration, texts ...string) {
			t.Helper()
			at := n.due()
			if due := time.Until(at); next == 0 && !at.IsZero() || next > 0 && due != next {
				t.Errorf("the next is due at %v, want in %v", at, next)
			}
			slices.Sort(given)
			if !slices.Equal(given, texts) {
				t.Errorf("gave %q, want %q", given, texts)
			}
			given = nil
		}

		add("Failed", "a")
		add("Failed", "b")
		add("Rejected", "x") // another kind
		want(noticeInterval, "a", "x")
		time.Sleep(30 * time.Second)
		add("Failed", "c")
		want(30 * time.Second)
		time.Sleep(30 * time.Second)
		want(noticeInterval, "c (2 times within 1m0s)")
		time.Sleep(10 * time.Second)
		add("Failed", "d")
		add("Rejected", "y") // of which a minute has had none
		want(50*time.Second, "y")
		time.Sleep(50 * time.Second)
		want(10*time.Second, "d")
		time.Sleep(2 * noticeInterval)
		want(0)
		if woken != 3 || len(n.kinds) > 0 {
			t.Errorf("woke the loop %d times, want once a kind that is new; %d kinds are left", woken, len(n.kinds))
		}
	})
}

// One Configuration's many kinds of notices are bounded, hide none of another's, and are counted.
func TestKindsOfNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotices(func() {})
		given := map[string]int{}
		add := func(configuration, about string) {
			n.add(noticeKind{configuration: configuration, about: about}, func(times int) { given[about] = times })
		}
		for i := range maxNoticeKinds + 10 {
			add("flood", fmt.Sprint(i))
		}
		add("cam", "quiet")
		last := fmt.Sprint(maxNoticeKinds + 9)
		if len(given) != maxNoticeKinds+2 || given["quiet"] != 1 || given[last] != 0 {
			t.Errorf("gave %d notices at once: %v", len(given), given)
		}
		time.Sleep(noticeInterval)
		n.due()
		if given[last] != 9 || len(n.kinds) != 1 {
			t.Errorf("the newest of those that are too many counts %d, want 9; %d kinds are left",
				given[last], len(n.kinds))
		}
		time.Sleep(noticeInterval)
		if n.due(); len(n.kinds)+len(n.of) > 0 {
			t.Errorf("%d kinds are left, of %d Configurations", len(n.kinds), len(n.of))
		}
	})
}

// However often a handler changes its mind, each thing is logged and recorded once a minute.
func TestAFlappingHandlerIsReportedOnceAMinute(t *testing.T) {
	defer klog.CaptureState().Restore()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(logger)
	const minutes = 3
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		agent := api.start(t, "node-a")
		agent.Add(at("/a.sock", handler))
		for i := range minutes * 60 * 20 {
			ids := []string{"foo0", fmt.Sprint("foo", i), ""} // the last is left out
			handler.see(ids[:2+i%2]...)
			pass(50 * time.Millisecond)
		}
		if n := len(agent.events.Events); n < minutes || n > minutes+1 {
			t.Errorf("%d Events of what is left out in %d minutes", n, minutes)
		}
		want := `Warning DevicesRejected Node node-a leaves out 1 devices: device "": has no id`
		if first := <-agent.events.Events; first != want {
			t.Errorf("the first Event is %q", first)
		}
		if second := <-agent.events.Events; !strings.HasSuffix(second, " times within 1m0s)") {
			t.Errorf("the second Event is %q, want how many it is about", second)
		}
	})
	lines := map[string]int{}
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		lines[entry.Message]++
	}
	delete(lines, "Wrote DeviceSlices") // which has a limit of its own
	for message, n := range lines {
		if n > minutes+1 {
			t.Errorf("%d lines %q in %d minutes", n, message, minutes)
		}
	}
	if lines["What is known of the devices has changed"] < minutes {
		t.Errorf("the log has the lines %v", lines)
	}
}
