package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"request", "requests", 1}, {"rquests", "requests", 1},
		{"requezts", "requests", 1}, {"ab", "ba", 1}, {"wyh", "why", 1}, {"abcd", "badc", 2}, {"ca", "abc", 3}, {"kitten", "sitting", 3},
	} {
		if got := Distance(test.a, test.b); got != test.want {
			t.Errorf("from %q to %q: %d, want %d", test.a, test.b, got, test.want)
		}
		if got := Distance(test.b, test.a); got != test.want {
			t.Errorf("from %q to %q: %d, want %d", test.b, test.a, got, test.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"requests", "scorer", "allocatefrom", "id"}
	for word, want := range map[string]string{
		"request": "requests", "Requests": "requests", "scored": "scorer", "devices": "", "alocatefrm": "allocatefrom", "ip": "", "": "", "iD": "id",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
	if got, want := DidYouMean("request", names), `; did you mean "requests"?`; got != want {
		t.Errorf("DidYouMean is %s, want %s", got, want)
	}
	if got := DidYouMean("devices", names); got != "" {
		t.Errorf("of a word that is like none DidYouMean is %s", got)
	}
}
