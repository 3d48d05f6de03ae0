package udev

import (
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

// key is what of a device a condition looks at: the names that udev(7) has.
type key int

const (
	keyKernel key = iota
	keySubsystem
	keyDriver
	keyDevpath
	keyAttr
	keyEnv
	keyTag
	keyKernels
	keySubsystems
	keyDrivers
	keyAttrs
	keyTags
)

// rule is one udev rule: all conditions must hold.
type rule struct {
	// device are the conditions on the device itself.
	device []condition
	// parents are the conditions that must all hold for one and the same of the device
	// and its parents: KERNELS, SUBSYSTEMS, DRIVERS, ATTRS and TAGS.
	parents []condition
	// warnings are what the rule's author probably meant otherwise.
	warnings []string
}

// condition is KEY{name}=="value" or KEY{name}!="value".
type condition struct {
	key    key
	name   string // of ATTR{name}, ATTRS{name} and ENV{name}
	negate bool
	value  pattern
}

// matches reports whether the rule selects the device.
func (r *rule) matches(d *sysfs.Device) bool {
	if !holdAll(r.device, d) {
		return false
	}
	if len(r.parents) == 0 {
		return true
	}
	for parent := d; parent != nil; parent = parent.Parent() {
		if holdAll(r.parents, parent) {
			return true
		}
	}
	return false
}

func holdAll(conditions []condition, d *sysfs.Device) bool {
	return !slices.ContainsFunc(conditions, func(c condition) bool { return !c.holds(d) })
}

// holds reports whether the condition holds for the device. What is missing counts as
// empty, except for attributes: a condition on one that a device does not have never
// holds, as in udevd, also with !=.
func (c *condition) holds(d *sysfs.Device) bool {
	switch c.key {
	case keyKernel, keyKernels:
		return c.value.matches(d.Name()) != c.negate
	case keySubsystem, keySubsystems:
		return c.value.matches(d.Subsystem()) != c.negate
	case keyDriver, keyDrivers:
		return c.value.matches(d.Driver()) != c.negate
	case keyDevpath:
		return c.value.matches(d.Path()) != c.negate
	case keyTag, keyTags:
		return slices.ContainsFunc(d.Tags(), c.value.matches) != c.negate
	case keyEnv:
		return c.matchesEnv(d) != c.negate
	case keyAttr, keyAttrs:
		value, ok := d.Attr(c.name)
		if !ok {
			return false
		}
		if !c.value.endsInSpace {
			value = strings.TrimRight(value, space)
		}
		return c.value.matches(value) != c.negate
	}
	return false
}

// matchesEnv takes a name with glob characters for that of any property, as libudev, and
// with it Akri's handler, does.
func (c *condition) matchesEnv(d *sysfs.Device) bool {
	if !isGlob(c.name) {
		return c.value.matches(d.Property(c.name))
	}
	for name, value := range d.Properties() {
		if glob(c.name, name) && c.value.matches(value) {
			return true
		}
	}
	return false
}

// pattern is the value of a condition: alternatives with "|" between them, which are
// globs if any one of them has a glob's character.
type pattern struct {
	alternatives []string
	globs        bool
	// endsInSpace: white space at the end of an attribute counts only if the first
	// alternative that is not empty ends in white space too.
	endsInSpace bool
}

// space is what isspace(3) takes for white space.
const space = " \t\n\v\f\r"

func newPattern(value string) pattern {
	p := pattern{alternatives: strings.Split(value, "|"), globs: isGlob(value)}
	for _, alternative := range p.alternatives {
		if alternative != "" {
			p.endsInSpace = strings.TrimRight(alternative, space) != alternative
			break
		}
	}
	return p
}

func (p *pattern) matches(s string) bool {
	if !p.globs {
		return slices.Contains(p.alternatives, s)
	}
	return slices.ContainsFunc(p.alternatives, func(pattern string) bool { return glob(pattern, s) })
}
