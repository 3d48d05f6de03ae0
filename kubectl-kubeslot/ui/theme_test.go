package ui

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// luminance is the relative luminance of #rrggbb, as WCAG 2 has it.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil || len(colour) != 7 {
		t.Fatalf("%q is no colour", colour)
	}
	sum := 0.0
	for i, weight := range []float64{0.0722, 0.7152, 0.2126} {
		c := float64(n>>(8*i)&0xff) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// Text can be read and states can be told apart on what they stand on, light and dark.
func TestContrast(t *testing.T) {
	css, err := embedded.ReadFile("page/theme.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark := map[string]string{}, map[string]string{}
	for _, line := range regexp.MustCompile(`--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`).FindAllStringSubmatch(string(css), -1) {
		light[line[1]], dark[line[1]] = line[2], line[3]
	}
	for name, theme := range map[string]map[string]string{"light": light, "dark": dark} {
		check := func(least float64, back string, fronts ...string) {
			for _, front := range fronts {
				a, b := luminance(t, theme[front]), luminance(t, theme[back])
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < least {
					t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", name, front, back, ratio, least)
				}
			}
		}
		for _, back := range []string{"page", "surface", "raised", "sunken"} {
			check(4.5, back, "text", "muted")
		}
		check(4.5, "surface", "waiting", "bad", "held") // held is also the colour of links
		check(4.5, "raised", "held")
		check(4.5, "bad-soft", "bad", "text")
		check(4.5, "warn-soft", "text")
		check(4.5, "held-soft", "text")
		check(3, "surface", "held", "assigned", "free", "good", "bad", "focus")
		check(3, "raised", "held", "assigned", "free")
	}
}
