package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	var text strings.Builder
	made := cost{took: 20 * time.Second, controller: 3, api: 12.34, writes: writes{"create pods": 1000, "create instances": 1000, "patch configurations/status": 4}}
	idle := cost{took: 30 * time.Second, controller: 0.03, writes: writes{}}
	r := result{arm: arms["local"], made: made, idle: idle, stopped: idle, rollout: made, allReady: 15 * time.Second, empty: memory{20, 8.4}, full: memory{60, 41}, replaced: 20}
	if err := write(&text, &options{instances: 1000, nodes: 50, idle: 30 * time.Second}, []result{r, {arm: arms["shared"]}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for _, want := range []string{
		"| 1000 Instances on 50 nodes | local devices, one broker each | shared devices, two brokers each |",
		"| brokers | 1000 | 2000 |",
		"| writes of the controller | 2004: 1000 create instances, 1000 create pods, 4 patch configurations/status | 0 |",
		"| CPU of the controller, s; of API server and etcd, s | 3.0; 12.3 | 0.0; 0.0 |",
		"| memory with all brokers | 60 (41) | 0 (0) |",
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
