package udev

import (
	"errors"
	"strings"
	"testing"
)

func TestRulesThatParse(t *testing.T) {
	for text, conditions := range map[string]int{
		`KERNEL=="video[0-9]*"`: 1,
		`KERNEL=="video[0-9]*",SUBSYSTEM=="video4linux", ATTR{idVendor}=="05a9"`: 3,
		` KERNEL == "video0" ,`:       1,
		`ATTRS{product}=="a \"b\" c"`: 1,
		`ENV{ID_*}=="?*"`:             1,
		`KERNEL=="a", KERNEL=="b"`:    2,
		`KERNELS=="1-1.2", SUBSYSTEMS=="usb", DRIVERS=="x|y", ATTRS{a/b}!="", TAGS=="t", DRIVER!="", DEVPATH=="/devices/*"`: 7,
		`ATTR{name}=="C+,=()!^@#&'~;<é"`: 1, // Akri's grammar has none of these in values.

		"KERNEL==\"a\",\n\tTAG!=\"b\"\r\n":                                                        2,
		"SUBSYSTEM==\"tty\", \\\n\tKERNEL==\"ttyUSB*\", \\\r\n\tTAG==\"a\"":                       3, // joined
		"KERN\\\n  EL==\"a\\\nb\"":                                                                1,
		`SUBSYSTEM=="tty", \ KERNEL=="ttyUSB*", \`:                                                2, // folded
		`SUBSYSTEM=="tty" SYMLINK+="x", MODE="0666",`:                                             1,
		`SUBSYSTEM=="tty" GROUP="dialout" TAG+="a", RUN{program}+="/x", ENV{B}+="c", KERNEL=="d"`: 2,
	} {
		r, err := parseRule(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := len(r.device) + len(r.parents); got != conditions {
			t.Errorf("%s has %d conditions, want %d", text, got, conditions)
		}
	}
}

func TestRulesThatDoNotParse(t *testing.T) {
	for text, tc := range map[string]struct {
		column int
		reason string // a part of it
	}{
		``:                                  {1, "has no condition"},
		` `:                                 {2, "has no condition"},
		`,`:                                 {1, "want a key"},
		`KERNEL=="a" SUBSYSTEM=="b"`:        {13, "want a comma"}, // Akri drops the second one.
		`KERNEL=="a",,TAG=="b"`:             {13, "want a key"},
		`KERNEL="a"`:                        {7, `"=" sets something`},
		`SYMLINK+="b"`:                      {13, "has no condition"},
		`KERNEL+="a"`:                       {7, `"+=" sets something`},
		`SUBSYSTEM=="tty", ENV{X}="b"`:      {25, `"=" sets something`}, // probably meant to be ==
		`KERNEL=="a" \TAG=="b"`:             {13, "want a key"},
		"KERNEL==\"a\", \\\nTAG=\"b\"":      {17, `"=" sets something`}, // of the joined line
		`KERNEL~"a"`:                        {7, "want == or !="},
		`KERNEL`:                            {7, "want == or !="},
		`KERNEL==a`:                         {9, "double quotes"},
		`KERNEL==`:                          {9, "double quotes"},
		`KERNEL=="a`:                        {9, "that ends the value is missing"},
		`KERNEL=="a\"`:                      {9, "that ends the value is missing"},
		`KERNEL==e"a"`:                      {9, "prefixes e and i"},
		`KERNEL{x}=="a"`:                    {7, "KERNEL has no {name}"},
		`ATTR=="a"`:                         {5, "ATTR needs a name"},
		`ATTR{}=="a"`:                       {6, "name in ATTR{} is missing"},
		`ATTRS{a=="a"`:                      {7, "} after ATTRS{ is missing"},
		`ATTR{$kernel}=="a"`:                {6, "substitutions"},
		`ATTR{[dmi/id]sys_vendor}=="a"`:     {6, "other devices"},
		`KERNEL=="a", TYPO=="b"`:            {14, `no key "TYPO"`},
		`kernel=="a"`:                       {1, `no key "kernel"`},
		`ACTION=="add", KERNEL=="a"`:        {1, "ACTION cannot select devices"},
		`KERNEL=="a", RUN=="/x"`:            {14, "RUN cannot select devices"},
		`KERNEL=="a", GOTO="end"`:           {14, "GOTO cannot select devices"},
		`KERNEL=="a", SYMLINK=="x"`:         {14, "SYMLINK cannot select devices"},
		"KERNEL==\"a\x00\"":                 {11, "NUL"},
		strings.Repeat(" ", maxRuleBytes+1): {1, "bytes"},
	} {
		r, err := parseRule(text)
		var syntax *syntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%.60s: %+v, %v; want a syntax error", text, r, err)
			continue
		}
		if syntax.column != tc.column || !strings.Contains(syntax.reason, tc.reason) {
			t.Errorf("%.60s: %v; want column %d and %q", text, err, tc.column, tc.reason)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add(`KERNEL=="video[0-9]*", ATTRS{idVendor}!="046d"`)
	f.Add(`ENV{ID_*}=="a|b\"c"`)
	f.Add(`DRIVERS=="(a|b)+.*", TAG!="[!a"`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRule(text)
		var syntax *syntaxError
		switch {
		case err == nil && len(r.device)+len(r.parents) == 0:
			t.Errorf("%q parses as a rule that selects every device", text)
		case err != nil && (!errors.As(err, &syntax) || syntax.column < 1 || syntax.column > len(text)+1):
			t.Errorf("%q: %v", text, err)
		case err == nil:
			for _, c := range append(r.device, r.parents...) {
				c.value.matches("video0")
				c.value.matches("")
			}
		}
	})
}

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "ab", false}, {"ab", "a", false},
		{"*", "", true}, {"*", "a/b.c", true}, {"a*", "a", true}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*b*c", "aXbXbc", true}, {"a*b*c", "aXbX", false}, {"**", "x", true}, {"*?", "", false}, {"?*", "x", true},
		{"?", "a", true}, {"?", "", false}, {"?", "ab", false}, {"a?c", "abc", true},
		{"video[0-9]", "video7", true}, {"video[0-9]", "videox", false}, {"video[0-9]*", "video10", true},
		{"[!0-9]", "a", true}, {"[!0-9]", "5", false}, {"[^0-9]", "a", true}, {"[!0-9]", "", false},
		{"[abc-]", "-", true}, {"[-a]", "-", true}, {"[]a]", "]", true}, {"[!]a]", "]", false}, {"[a-]", "-", true}, {"[z-a]", "m", false},
		{"[[:digit:]]", "4", true}, {"[[:digit:]x]", "x", true}, {"[![:digit:]]", "4", false}, {"[[:nosuch:]]", "a", false},
		{"[a", "[a", true}, {"[", "[", true}, {"x[", "x[", true}, {"[a", "a", false},
		{`\*`, "*", true}, {`\*`, "a", false}, {`[\]]`, "]", true}, {`[\a-c]`, "b", true}, {`a\`, `a\`, false}, {`a\`, `a`, false},
		{strings.Repeat("a*", 40) + "b", strings.Repeat("a", 4000), false}, // quick
	} {
		if got := glob(tc.pattern, tc.s); got != tc.want {
			t.Errorf("glob(%.40q, %.40q) = %v, want %v", tc.pattern, tc.s, got, tc.want)
		}
	}
}
