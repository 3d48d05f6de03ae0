package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i)*time.Millisecond)
	}
	one := result{
		until: 2500 * time.Millisecond, load: writes{"kubecri deviceslices": 41, "kubecri nodes": 2, "controller instances": 9},
		empty: usage{resident: 40.4, anonymous: 15}, full: usage{resident: 60, anonymous: 34.6},
		emptyIdle: 0.01, idle: 0.0115, idleWrites: writes{"controller instances": 1}, plugged: times,
	}
	other := one
	other.handlers, other.handlersIdle = usage{resident: 20, anonymous: 10}, 0.0005
	var text strings.Builder
	if err := write(&text, &options{devices: 10, configurations: 2, idle: time.Minute}, []result{one, other}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 10 devices of 2 Configurations on one node | handlers in kubecri | as processes |\n",
		"| the scheduler can give all devices after, s | 2.5 | 2.5 |\n",
		"| writes of kubecri | 43: 41 deviceslices, 2 nodes | 43: 41 deviceslices, 2 nodes |\n",
		"| writes of the controller | 9: 9 instances | 9: 9 instances |\n",
		"| memory of kubecri with all | 60 (35) | 60 (35) |\n",
		"| memory of the handlers' processes | – | 20 (10) |\n",
		"| idle for 1m0s: writes | 1 | 1 |\n",
		"| idle: the difference, and the handlers' processes | 0.15 | 0.20 |\n",
		"| plugged in: until there is an Instance, ms: p50, p99, most | 100, 198, 200 |",
		"| restart of kubecri: writes | 0 | 0 |\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
}

func TestWritesSince(t *testing.T) {
	before, now := writes{"kubecri nodes": 2, "controller instances": 1}, writes{"kubecri nodes": 5, "controller instances": 1}
	if got := now.since(before); len(got) != 1 || got.of(kubecri) != 3 || got.of(controller) != 0 {
		t.Errorf("since() = %v, want 3 of nodes", got)
	}
}

func TestUseOfThisProcess(t *testing.T) {
	u, err := use(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if u.cpu <= 0 || u.resident <= 0 || u.anonymous <= 0 || u.anonymous > u.resident {
		t.Errorf("use() = %+v", u)
	}
}
