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
		if class, length := class(pattern[i:]); length > 0 {
			in = in || class(b)
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

// class is a class such as [:digit:] at the beginning of a pattern; length 0 if none.
func class(pattern string) (contains func(byte) bool, length int) {
	if !strings.HasPrefix(pattern, "[:") {
		return nil, 0
	}
	name, _, ok := strings.Cut(pattern[2:], ":]")
	if !ok {
		return nil, 0
	}
	between := func(low, high byte) func(byte) bool {
		return func(b byte) bool { return low <= b && b <= high }
	}
	digit, lower, upper := between('0', '9'), between('a', 'z'), between('A', 'Z')
	contains, ok = map[string]func(byte) bool{
		"digit": digit, "lower": lower, "upper": upper,
		"alpha":  func(b byte) bool { return lower(b) || upper(b) },
		"alnum":  func(b byte) bool { return lower(b) || upper(b) || digit(b) },
		"xdigit": func(b byte) bool { return digit(b) || between('a', 'f')(b) || between('A', 'F')(b) },
		"space":  func(b byte) bool { return strings.IndexByte(" \t\n\v\f\r", b) >= 0 },
		"blank":  func(b byte) bool { return b == ' ' || b == '\t' },
		"graph":  between('!', '~'),
		"print":  between(' ', '~'),
		"cntrl":  func(b byte) bool { return b < ' ' || b == 127 },
		"punct": func(b byte) bool {
			return between('!', '~')(b) && !lower(b) && !upper(b) && !digit(b)
		},
	}[name]
	if !ok {
		return nil, 0
	}
	return contains, len("[:") + len(name) + len(":]")
}
