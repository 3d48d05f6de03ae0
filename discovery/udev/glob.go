package udev

import "strings"

// isGlob reports whether a value has a glob's special characters. Without any, udev
// compares it as it is, backslashes included.
func isGlob(value string) bool { return strings.ContainsAny(value, "*?[") }

// glob reports whether the whole string matches, as fnmatch(3) without flags does in the
// C locale: * is any string, slashes and dots included, ? any byte, [a-z] a set, [!a-z]
// and [^a-z] its complement, \ takes the next character as it is. A [ without its ] is
// an ordinary character.
func glob(pattern, s string) bool {
	// Where to go on when what follows the last * does not match: one byte further.
	afterStar, retry := -1, 0
	p, i := 0, 0
	for i < len(s) || p < len(pattern) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				p++
				afterStar, retry = p, i
				continue
			}
			if i < len(s) {
				if width, ok := one(pattern[p:], s[i]); ok {
					p += width
					i++
					continue
				}
			}
		}
		if afterStar < 0 || retry >= len(s) {
			return false
		}
		retry++
		p, i = afterStar, retry
	}
	return true
}

// one matches one byte with the beginning of a pattern that is not empty, and returns
// how much of the pattern that was.
func one(pattern string, b byte) (width int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		if width, ok, closed := set(pattern, b); closed {
			return width, ok
		}
	case '\\':
		if len(pattern) == 1 {
			return 1, false // fnmatch: a \ at the end matches nothing.
		}
		return 2, pattern[1] == b
	}
	return 1, pattern[0] == b
}

// set matches a byte with [a-z], [!a-z] or [[:alpha:]].
func set(pattern string, b byte) (width int, ok, closed bool) {
	i, negate := 1, false
	if i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^') {
		negate = true
		i++
	}
	in := false
	for first := true; i < len(pattern); first = false {
		if pattern[i] == ']' && !first {
			return i + 1, in != negate, true
		}
		if of, length := class(pattern[i:], b); length > 0 {
			in = in || of
			i += length
			continue
		}
		low, length := member(pattern[i:])
		i += length
		high := low
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			high, length = member(pattern[i+1:])
			i += 1 + length
		}
		in = in || low <= b && b <= high
	}
	return 0, false, false
}

// member is one byte of a set; a \ takes the next one as it is.
func member(pattern string) (b byte, length int) {
	if pattern[0] == '\\' && len(pattern) > 1 {
		return pattern[1], 2
	}
	return pattern[0], 1
}

// classes are those of the C locale: pairs of the lowest and the highest byte.
var classes = map[string]string{
	"digit": "09", "lower": "az", "upper": "AZ", "alpha": "azAZ", "alnum": "azAZ09", "xdigit": "09afAF",
	"space": "\t\r  ", "blank": "\t\t  ", "graph": "!~", "print": " ~", "cntrl": "\x00\x1f\x7f\x7f", "punct": "!/:@[`{~",
}

// class matches a byte with a class such as [:digit:] at the beginning of a pattern; length is 0 if
// there is none.
func class(pattern string, b byte) (in bool, length int) {
	rest, opened := strings.CutPrefix(pattern, "[:")
	if !opened {
		return false, 0
	}
	name, _, closed := strings.Cut(rest, ":]")
	pairs, known := classes[name]
	if !closed || !known {
		return false, 0
	}
	for ; pairs != ""; pairs = pairs[2:] {
		in = in || pairs[0] <= b && b <= pairs[1]
	}
	return in, len("[:") + len(name) + len(":]")
}
