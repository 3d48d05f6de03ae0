package sysfs

import (
	"cmp"
	"strings"
)

// ComparePaths orders paths so that a device comes right before all that are below it,
// and numbers by their value: video2 before video10.
func ComparePaths(a, b string) int {
	for a != "" && b != "" {
		x, y := number(a), number(b)
		if x != "" && y != "" {
			a, b = a[len(x):], b[len(y):]
			if order := compareNumbers(x, y); order != 0 {
				return order
			}
			continue
		}
		if a[0] != b[0] {
			// A slash is the lowest: all below a device come before its siblings.
			switch {
			case a[0] == '/':
				return -1
			case b[0] == '/':
				return 1
			}
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// number returns the digits at the beginning of s.
func number(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}

// compareNumbers compares digits by value, and of equal values those with fewer zeros
// before them first.
func compareNumbers(x, y string) int {
	xValue, yValue := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
	return cmp.Or(cmp.Compare(len(xValue), len(yValue)), cmp.Compare(xValue, yValue), cmp.Compare(len(x), len(y)))
}
