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

// assignable keys set something of a device, or run something. Rules for udevd may have
// them; here they have no effect, and raise a warning.
var assignable = []string{
	"ATTR", "ENV", "GROUP", "MODE", "NAME", "OPTIONS", "OWNER", "RUN", "SECLABEL", "SYMLINK", "TAG",
}

// otherKeys are keys of udev(7) that decide which rules apply, or look at what a device
// does not have for ever.
var otherKeys = []string{
	"ACTION", "CONST", "GOTO", "IMPORT", "LABEL", "PROGRAM", "RESULT", "SYSCTL", "TEST", "WAIT_FOR",
}

// syntaxError is where a rule is wrong, and why.
type syntaxError struct {
	column int // from 1, in bytes
	reason string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.column, e.reason) }

// continued is a line's end that udevd joins with the next line, and white space there.
var continued = regexp.MustCompile(`\\\r?\n[ \t]*`)

// parseRule reads one rule: conditions with commas between them, such as
//
//	SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"
//
// White space may stand anywhere but inside keys and operators, a comma at the end, and
// \" inside a value. A \ at the end of a line joins it with the next. Errors are
// *syntaxError, whose column counts in the joined line.
func parseRule(text string) (*rule, error) {
	p := &parser{text: continued.ReplaceAllString(text, "")}
	if len(text) > maxRuleBytes {
		return nil, p.fail("the rule has %d bytes, of %d that are allowed", len(text), maxRuleBytes)
	}
	r := &rule{}
	comma := true // None is needed before the first condition.
	for p.space(); !p.done(); p.space() {
		start := p.at
		c, err := p.term()
		switch {
		case err != nil:
			return nil, err
		case c == nil: // An assignment needs no comma before it.
		case !comma:
			p.at = start
			return nil, p.fail("want a comma before the next condition")
		case c.key >= keyKernels:
			r.parents = append(r.parents, *c)
		default:
			r.device = append(r.device, *c)
		}
		p.space()
		comma = p.take(",")
	}
	if len(r.device)+len(r.parents) == 0 {
		return nil, p.fail(`the rule has no condition and would select every device; one that does is KERNEL=="*"`)
	}
	if len(p.assigned) > 0 {
		p.warn("assignments have no effect, rules only select devices: %s", strings.Join(p.assigned, ", "))
	}
	r.warnings = p.warnings
	return r, nil
}

type parser struct {
	text     string
	at       int
	assigned []string // the keys of assignments, each once
	warnings []string
}

func (p *parser) fail(format string, args ...any) error {
	return &syntaxError{column: p.at + 1, reason: fmt.Sprintf(format, args...)}
}

func (p *parser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

func (p *parser) done() bool { return p.at == len(p.text) }

// space goes past white space, and past a \ before it: where YAML folds lines, that was
// the end of one.
func (p *parser) space() {
	for {
		rest := strings.TrimLeft(p.text[p.at:], " \t\r\n")
		p.at = len(p.text) - len(rest)
		if rest != `\` && !strings.HasPrefix(rest, `\ `) {
			return
		}
		p.at++
	}
}

func (p *parser) take(s string) bool {
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

// term reads KEY{name}=="value", or an assignment, of which it returns nil.
func (p *parser) term() (*condition, error) {
	start := p.at
	word := p.word()
	kind, selects := keys[word]
	assigns := slices.Contains(assignable, word)
	if !selects && !assigns {
		return nil, p.unknownKey(start, word)
	}
	c := &condition{key: kind.key}
	named := kind.named || !selects && strings.HasPrefix(p.text[p.at:], "{") // as in RUN{builtin}
	if err := p.name(c, word, named); err != nil {
		return nil, err
	}
	p.space()
	at := p.at
	operator := p.operator()
	switch {
	case operator == "":
		return nil, p.fail("want == or != after %s", word)
	case operator == "==" || operator == "!=":
		if !selects {
			return nil, p.unknownKey(start, word)
		}
		c.negate = operator == "!="
	case selects && (operator == "=" || !assigns): // = is probably meant to be ==.
		p.at = at
		return nil, p.fail("%q sets something; conditions have == or !=", operator)
	default:
		if c = nil; !slices.Contains(p.assigned, word) {
			p.assigned = append(p.assigned, word)
		}
	}
	p.space()
	value, err := p.value()
	if err != nil || c == nil {
		return nil, err
	}
	if c.likeRegexp(value) {
		p.warn("the value %.64q of %s is a glob, as in udev, "+
			`not a regular expression, as in Akri: write * for .* and [0-9] for \d`, value, word)
	}
	c.value = newPattern(value)
	return c, nil
}

// unknownKey is the error of a key at start that cannot select devices.
func (p *parser) unknownKey(start int, word string) error {
	p.at = start
	switch {
	case slices.Contains(otherKeys, word), slices.Contains(assignable, word):
		return p.fail("%s cannot select devices; those that can are %s", word, keyNames())
	case word == "":
		return p.fail("want a key such as KERNEL, not %.16q", p.text[p.at:])
	}
	return p.fail("there is no key %.32q; there are %s", word, keyNames())
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

// operator goes past the operator that comes next, and returns it; "" if there is none.
func (p *parser) operator() string {
	for _, operator := range []string{"==", "!=", "=", "+=", "-=", ":="} {
		if p.take(operator) {
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
