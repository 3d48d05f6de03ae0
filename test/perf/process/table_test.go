package main

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/types/assignment"
)

func TestTable(t *testing.T) {
	arms, err := chosen("plain,ours")
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range arms {
		n := float64(i + 1)
		a.scheduled = memory{heap: n * 200 * mib, anonymous: n * 300 * mib}
		a.restarted = []memory{{heap: 3 * n * mib}, {heap: 2 * n * mib}, {heap: 40 * n * mib}}
		a.speeds = []speed{
			{pods: 100, seconds: n, cpu: usage{scheduler: 0.2 * n, api: 0.3 * n, etcd: 0.04 * n}},
			{pods: 200, seconds: n, cpu: usage{scheduler: 0.6 * n, api: 0.6 * n, etcd: 0.08 * n}},
		}
	}
	var out strings.Builder
	if err := write(&out, size{nodes: 10, slots: 4, pods: 20, rounds: 2, further: 100}, arms); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"10 nodes, 40 slots, 20 bound pods, 2 rounds of 100 further ones",
		"| | plain | ours |\n|---|---|---|\n",
		"| started on the full cluster: heap in use, MiB | 3.0 (2.0–40.0) | 6.0 (4.0–80.0), 2.00× |",
		"| anonymous resident memory, MiB | 300.0 | 600.0, 2.00× |",
		"| further pods, pods/s | 150.0 (100.0–200.0) | 75.0 (50.0–100.0), 0.50× |",
		"| CPU of the scheduler, ms/pod | 2.50 (2.00–3.00) | 5.00 (4.00–6.00), 2.00× |",
		"| CPU of the API server, ms/pod | 3.00 | 6.00, 2.00× |",
		"| CPU of etcd, ms/pod | 0.40 | 0.80, 2.00× |",
	} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in:\n%s", row, out.String())
		}
	}
}

// The nodes of the plugin's arms say what kubecri would.
func TestWidgets(t *testing.T) {
	arms, err := chosen("so,grpc")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range arms {
		a.slots = 6
		t.Setenv(widget.LayoutEnv, "")
		if err := a.prepareWidgets(); err != nil {
			t.Fatal(err)
		}
		annotations, err := a.nodeAnnotations()
		if err != nil {
			t.Fatal(err)
		}
		info, err := assignment.DecodeNode(annotations)
		if err != nil || len(info.Allocatable) != 6 || info.Allocatable["resource/group/board/2/widget/5/cards"] != 1 {
			t.Errorf("%s: a node has %v, %v", a.name, info, err)
		}
	}
}

func TestFlagsAreRefused(t *testing.T) {
	for _, names := range []string{"", "plain,", "plain,plain", "stock"} {
		if _, err := chosen(names); err == nil {
			t.Errorf("-arms=%s is not refused", names)
		}
	}
	fits := size{nodes: 10, slots: 4, pods: 20, rounds: 2, further: 10, furtherDRA: 5}
	if err := fits.validate(); err != nil {
		t.Errorf("%+v: %v", fits, err)
	}
	for name, change := range map[string]func(*size){
		"no nodes":           func(s *size) { s.nodes = 0 },
		"odd slots":          func(s *size) { s.slots = 5 },
		"no slots":           func(s *size) { s.slots = 0 },
		"no pods":            func(s *size) { s.pods = 0 },
		"no rounds":          func(s *size) { s.rounds = 0 },
		"no further pods":    func(s *size) { s.further = 0 },
		"no DRA pods":        func(s *size) { s.furtherDRA = 0 },
		"a pod too many":     func(s *size) { s.pods++ },
		"a DRA pod too many": func(s *size) { s.furtherDRA = 11 },
	} {
		s := fits
		change(&s)
		if err := s.validate(); err == nil {
			t.Errorf("%s: %+v is not refused", name, s)
		}
	}
}
