package udev

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxRuleBytes is how long a rule may be. udevd's lines may have 16 KiB.
const maxRuleBytes = 16 << 10

// keys are the keys that select devices. named ones have {name}.
var keys = map[string]struct {
	key   key
	named bool
}{
	"KERNEL": {key: keyKernel}, "KERNELS": {key: keyKernels},
	"SUBSYSTEM": {key: keySubsystem}, "SUBSYSTEMS": {key: keySubsystems},
	"DRIVER": {key: keyDriver}, "DRIVERS": {key: keyDrivers},
	"TAG": {key: keyTag}, "TAGS": {key: keyTags},
	"DEVPATH": {key: keyDevpath},
	"ENV":     {key: keyEnv, named: true},
	"ATTR":    {key: keyAttr, named: true}, "ATTRS": {key: keyAttrs, named: true},
}

// otherKeys are keys of udev(7) that set something, run something, or look at what a
// device does not have for ever.
var otherKeys = []string{
	"ACTION", "CONST", "GOTO", "GROUP", "IMPORT", "LABEL", "MODE", "NAME", "OPTIONS", "OWNER", "PROGRAM",
	"RESULT", "RUN", "SECLABEL", "SYMLINK", "SYSCTL", "TEST", "WAIT_FOR",
}

// syntaxError is where a rule is wrong, and why.
type syntaxError struct {
	column int // from 1, in bytes
	reason string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.column, e.reason) }

// parseRule reads one rule: conditions with commas between them, such as
//
//	SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"
//
// White space may stand anywhere but inside keys and operators, a comma at the end, and
// \" inside a value. Errors are *syntaxError.
func parseRule(text string) (*rule, error) {
	p := &parser{text: text}
	if len(text) > maxRuleBytes {
		return nil, p.fail("the rule has %d bytes, of %d that are allowed", len(text), maxRuleBytes)
	}
	r := &rule{}
	for {
		p.space()
		if p.done() {
			break
		}
		c, err := p.condition()
		if err != nil {
			return nil, err
		}
		if c.key >= keyKernels {
			r.parents = append(r.parents, c)
		} else {
			r.device = append(r.device, c)
		}
		p.space()
		if !p.done() && !p.take(",") {
			return nil, p.fail("want a comma before the next condition")
		}
	}
	if len(r.device)+len(r.parents) == 0 {
		return nil, p.fail(`the rule is empty and would select every device; one that does is KERNEL=="*"`)
	}
	r.warnings = p.warnings
	return r, nil
}

type parser struct {
	text     string
	at       int
	warnings []string
}

func (p *parser) fail(format string, args ...any) error {
	return &syntaxError{column: p.at + 1, reason: fmt.Sprintf(format, args...)}
}

func (p *parser) done() bool { return p.at == len(p.text) }

func (p *parser) space() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], " \t\r\n"))
}

func (p *parser) take(s string) bool {
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

// condition reads KEY{name}=="value".
func (p *parser) condition() (condition, error) {
	start := p.at
	word := p.word()
	kind, known := keys[word]
	if !known {
		p.at = start
		switch {
		case slices.Contains(otherKeys, word):
			return condition{}, p.fail("%s cannot select devices; those that can are %s", word, keyNames())
		case word == "":
			return condition{}, p.fail("want a key such as KERNEL, not %.16q", p.text[p.at:])
		}
		return condition{}, p.fail("there is no key %.32q; there are %s", word, keyNames())
	}
	c := condition{key: kind.key}
	if err := p.name(&c, word, kind.named); err != nil {
		return condition{}, err
	}
	p.space()
	switch operator := p.operator(); operator {
	case "==":
	case "!=":
		c.negate = true
	case "":
		return condition{}, p.fail("want == or != after %s", word)
	default:
		return condition{}, p.fail("%q sets something; conditions have == or !=", operator)
	}
	p.space()
	value, err := p.value()
	if err != nil {
		return condition{}, err
	}
	if c.likeRegexp(value) {
		p.warnings = append(p.warnings, fmt.Sprintf("the value %.64q of %s is a glob, as in udev, "+
			`not a regular expression, as in Akri: write * for .* and [0-9] for \d`, value, word))
	}
	c.value = newPattern(value)
	return c, nil
}

// akriRegexp finds what only a regular expression has: .* or .? at an alternative's
// beginning or after a letter, and \d and its like. "2.*" may be the pattern of a version.
var akriRegexp = regexp.MustCompile(`(^|[^0-9])\.[*?]|\\[dws]`)

// likeRegexp reports whether the value is probably one of the regular expressions that
// Akri's handler takes for some keys. Names of the kernel have dots, as in "1-1.*".
func (c *condition) likeRegexp(value string) bool {
	switch c.key {
	case keyKernel, keyKernels, keyDevpath:
		return false
	}
	return akriRegexp.MatchString(value)
}

// operator returns the operator that comes next, or "". It goes past == and != alone.
func (p *parser) operator() string {
	for _, operator := range []string{"==", "!="} {
		if p.take(operator) {
			return operator
		}
	}
	for _, operator := range []string{"=", "+=", "-=", ":="} {
		if strings.HasPrefix(p.text[p.at:], operator) {
			return operator
		}
	}
	return ""
}

func (p *parser) word() string {
	end := p.at
	for end < len(p.text) && (p.text[end] == '_' || 'A' <= p.text[end] && p.text[end] <= 'Z' || 'a' <= p.text[end] && p.text[end] <= 'z') {
		end++
	}
	word := p.text[p.at:end]
	p.at = end
	return word
}

// name reads {name}, where the key has one.
func (p *parser) name(c *condition, word string, named bool) error {
	if !strings.HasPrefix(p.text[p.at:], "{") {
		if named {
			return p.fail("%s needs a name: %s{name}", word, word)
		}
		return nil
	}
	if !named {
		return p.fail("%s has no {name}", word)
	}
	p.at++
	name, _, ok := strings.Cut(p.text[p.at:], "}")
	switch {
	case !ok:
		return p.fail("the } after %s{ is missing", word)
	case name == "":
		return p.fail("the name in %s{} is missing", word)
	case c.key != keyEnv && strings.ContainsAny(name, "$%"):
		return p.fail("names of attributes cannot have substitutions such as $kernel")
	case c.key != keyEnv && strings.HasPrefix(name, "["):
		return p.fail("attributes of other devices, as in [subsystem/device]name, cannot be matched")
	}
	c.name = name
	p.at += len(name) + 1
	return nil
}

// value reads "value".
func (p *parser) value() (string, error) {
	start := p.at
	if rest := p.text[p.at:]; strings.HasPrefix(rest, `e"`) || strings.HasPrefix(rest, `i"`) {
		return "", p.fail(`want "value": the prefixes e and i are not supported`)
	}
	if !p.take(`"`) {
		return "", p.fail(`want a value in double quotes`)
	}
	var value strings.Builder
	for !p.done() {
		switch c := p.text[p.at]; {
		case p.take(`\"`):
			value.WriteByte('"')
		case c == '"':
			p.at++
			return value.String(), nil
		case c == 0:
			return "", p.fail("a value cannot have a NUL byte")
		default:
			value.WriteByte(c)
			p.at++
		}
	}
	p.at = start
	return "", p.fail(`the " that ends the value is missing`)
}

func keyNames() string {
	names := make([]string, 0, len(keys))
	for name, kind := range keys {
		if kind.named {
			name += "{…}"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
