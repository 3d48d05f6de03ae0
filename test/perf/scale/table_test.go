package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestExponent(t *testing.T) {
	x := []float64{50, 200, 500, 1000}
	for _, k := range []float64{0, 1, 1.7, 2} {
		var y []float64
		for _, n := range x {
			y = append(y, 3*math.Pow(n, k))
		}
		if got, ok := exponent(x, y); !ok || math.Abs(got-k) > 1e-9 {
			t.Errorf("exponent of 3·N^%v = %v, %v", k, got, ok)
		}
	}
	for name, y := range map[string][]float64{"zeros": {0, 1, 2, 3}, "one point": {1}} {
		if _, ok := exponent(x[:len(y)], y); ok {
			t.Errorf("%s: fitted", name)
		}
	}
}

func TestQuantile(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := quantile(sorted, q); got != want {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
}

// The peer's figures have ours beside them, as so many times as much.
func TestPeers(t *testing.T) {
	r := result{Nodes: 7, Taken: make([]time.Duration, 10), Join: cost{Seconds: 6, API: 8, Etcd: 1}, Claim: cost{API: 0.06}, Release: cost{API: 0.05}, Restart: cost{Seconds: 3, API: 5},
		Bare: bare{Join: cost{Seconds: 2, API: 2, Etcd: 1}, Claim: cost{API: 0.02}, Release: cost{Etcd: 0.05}, Restart: cost{Seconds: 1, API: 2}}}
	var text strings.Builder
	writePeers(&text, []result{r, r})
	for _, want := range []string{"| N=7 | N=7 |", "answered, s | 2.00 (3.0) | 2.00 (3.0) |", "CPU of API server and etcd, s | 3.00 (3.0)", "a claim: CPU of API server and etcd, ms | 2.00 (3.0)",
		"a release: CPU of API server and etcd, ms | 5.00 (1.0)", "all watch, s | 1.00 (3.0)", "etcd, s | 2.00 (2.5)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
