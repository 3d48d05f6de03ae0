package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"request", "requests", 1}, {"rquests", "requests", 1},
		{"requezts", "requests", 1}, {"ab", "ba", 2}, {"kitten", "sitting", 3},
	} {
		if got := Distance(test.a, test.b); got != test.want {
			t.Errorf("from %q to %q: %d, want %d", test.a, test.b, got, test.want)
		}
		if got := Distance(test.b, test.a); got != test.want {
			t.Errorf("from %q to %q: %d, want %d", test.b, test.a, got, test.want)
		}
	}
}
