package main

import (
	"math"
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
