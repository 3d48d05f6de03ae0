package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var times []time.Duration
	for i := 100; i > 0; i-- {
		times = append(times, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, .5: 51, .99: 100, 1: 100} {
		if got := quantile(times, q); got != want {
			t.Errorf("quantile %v of 1 to 100 is %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, .5); got != 0 {
		t.Errorf("of nothing it is %d", got)
	}
}

func TestProcess(t *testing.T) {
	self := process{os.Getpid()}
	if anonymous, err := self.anonymous(); err != nil || anonymous < 1<<20 || anonymous > 1<<30 {
		t.Errorf("our memory is %d bytes, %v", anonymous, err)
	}
	before, err := self.cpu()
	if err != nil {
		t.Fatal(err)
	}
	for now := before; now == before; {
		if now, err = self.cpu(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (process{-1}).anonymous(); err == nil {
		t.Error("a process that does not exist has memory")
	}
}

func TestTable(t *testing.T) {
	b := &bench{results: []result{{operation: "Version", times: [2][]time.Duration{{time.Millisecond}, {1500 * time.Microsecond}}, cpu: time.Millisecond, calls: 2}},
		memory: []memory{{when: "with 10 containers", kubecri: 50 << 20, heap: 9 << 20, containerd: 60 << 20}}}
	var out strings.Builder
	if err := b.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| Version | 1.000 ms | 1.000 ms | 1.500 ms | 1.500 ms | 0.500 ms | 1.500 | 0.500 ms |",
		"| with 10 containers | 50.0 MiB | 9.0 MiB | 60.0 MiB |",
	} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in:\n%s", row, out.String())
		}
	}
}
