package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	var text strings.Builder
	made := cost{took: 20 * time.Second, controller: 3, api: 12.34, writes: writes{"create pods": 1000, "create instances": 1000, "patch configurations/status": 4}}
	idle := cost{took: 30 * time.Second, controller: 0.03, writes: writes{}}
	more := made
	more.controller, more.took = 33, 4*made.took
	small := result{arm: arms["local"], instances: 1000,
		made: made, idle: idle, stopped: idle, rollout: made, allReady: 15 * time.Second,
		empty: memory{20, 8}, full: memory{60, 40}, replaced: 20, rolledOut: true}
	large := result{arm: arms["local"], instances: 10000, made: more, empty: memory{20, 8}, full: memory{250, 200}}
	o := &options{nodes: 50, idle: 30 * time.Second}
	if err := write(&text, o, []result{small, large}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for _, want := range []string{
		"| Instances on 50 nodes: local devices, one broker each | 1000 | 10000 | growth |",
		"|---|---|---|---|",
		"| brokers | 1000 | 10000 | 10.0× |",
		"| … and its status says so, s | 20.0 | 80.0 | 4.0× |",
		"| writes of the controller | 2004: 1000 create instances, 1000 create pods, 4 patch configurations/status | " +
			"2004: 1000 create instances, 1000 create pods, 4 patch configurations/status | 1.0× |",
		"| CPU of the controller, s; of API server and etcd, s | 3.0; 12.3 | 33.0; 12.3 | 11.0× |",
		"| memory with all brokers | 60 (40) | 250 (200) | 6.0× |",
		"| … of it heap for an Instance, KiB | 32.8 | 19.7 | - |",
		"| idle for 30s: writes; CPU of the controller, % of a core | 0; 0.10 | 0; NaN | - |",
		"| another image, until all are replaced, s | 20.0 | - | - |",
	} {
		found := false
		for _, line := range lines {
			found = found || line == want
		}
		if !found {
			t.Errorf("no line %q in\n%s", want, text.String())
		}
	}
	if got := idle.share(); got != "0; 0.10" {
		t.Errorf("idle is %q", got)
	}
}

// The audit log is read on from where it ended, also when a line was half written.
func TestAuditIsReadOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	a := newAudit(f)
	for _, step := range []struct {
		append string
		want   string
	}{
		{"", "0"},
		{`{"verb":"create","user":{"username":"system:kubeslot-controller"},"objectRef":{"resource":"pods"},"responseStatus":{"code":201}}` + "\n", "1: 1 create pods"},
		{`{"verb":"create","user":{"username":"eve"},"objectRef":{"resource":"pods"}}` + "\n" + `{"verb":"patch","user":{"username":"system:kubeslot-con`, "1: 1 create pods"},
		{`troller"},"objectRef":{"resource":"configurations","subresource":"status"},"responseStatus":{"code":409}}` + "\n", "2: 1 create pods, 1 patch configurations/status (409)"},
	} {
		if _, err := log.WriteString(step.append); err != nil {
			t.Fatal(err)
		}
		got, err := a.written()
		if err != nil || got.show() != step.want {
			t.Fatalf("%v, %v, want %s", got.show(), err, step.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string][]int{
		"1000": {1000}, "10000,1000": {1000, 10000}, "": nil, "1000,": nil, "-1": nil, "1k": nil,
	} {
		var o options
		if err := o.setSizes(text); (err == nil) != (want != nil) || want != nil && !slices.Equal(o.sizes, want) {
			t.Errorf("%q: %v, %v", text, o.sizes, err)
		}
	}
}
