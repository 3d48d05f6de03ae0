package brokers

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/spelling"
)

// Templates that a broker's spec may have, in the values of env, in command and args,
// and in the annotations and labels of a Job's pods.
const (
	instanceTemplate  = "INSTANCE"
	nodeTemplate      = "NODE"
	slotCountTemplate = "SLOT_COUNT"
	propertyTemplate  = "property:" // and the property's name
)

// templatePattern matches what is meant as a template: a word in capitals, or
// property:NAME. Everything else in double braces, as templates of Go and of Jinja, is
// the broker's own.
var templatePattern = regexp.MustCompile(`\{\{([A-Z][A-Z0-9_]*|property:[^{}]*)\}\}`)

// values are what templates stand for.
type values struct {
	instance   string
	node       string // "" for a Job, whose node nobody knows yet
	properties map[string]string
	// kubelet is set for texts in which the kubelet replaces $(VARIABLE). Properties come
	// from devices, which are not to read the broker's variables, its Secrets among them.
	kubelet bool
}

// variablePattern matches a property that would be, or begin, the name of a variable.
var variablePattern = regexp.MustCompile(`(^|[^$])(\$\$)*\$\(?\{\{property:`)

// expand replaces the templates in a text. slots is how many slots of the Instance
// the container requests, or the pod for a label or annotation.
func (v values) expand(text string, slots int64) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	var errs []error
	if v.kubelet && variablePattern.MatchString(text) {
		errs = append(errs, errors.New("a property after $ or $( names a variable: write $$ for a $, and the variable's name in full"))
	}
	expanded := templatePattern.ReplaceAllStringFunc(text, func(match string) string {
		name := match[2 : len(match)-2]
		property, isProperty := strings.CutPrefix(name, propertyTemplate)
		switch {
		case name == instanceTemplate:
			return v.instance
		case name == nodeTemplate && v.node != "":
			return v.node
		case name == nodeTemplate:
			errs = append(errs, errors.New("{{NODE}} is not known in a Job; use an env variable with valueFrom.fieldRef spec.nodeName"))
		case name == slotCountTemplate:
			return strconv.FormatInt(slots, 10)
		case isProperty:
			value, ok := v.properties[property]
			switch {
			case ok && v.kubelet:
				return strings.ReplaceAll(value, "$", "$$")
			case ok:
				return value
			}
			errs = append(errs, fmt.Errorf("%s: device and Configuration have no property %q; %s", match, property, namesOf(v.properties)))
		default:
			errs = append(errs, fmt.Errorf("unknown template %s; there are {{INSTANCE}}, {{NODE}}, {{SLOT_COUNT}} and {{property:NAME}}%s", match, meant(name, v.node == "")))
		}
		return match
	})
	return expanded, errors.Join(errs...)
}

// meant proposes the template that a misspelt one was meant to be; "" when none is near.
func meant(name string, job bool) string {
	names := []string{instanceTemplate, slotCountTemplate}
	if !job {
		names = append(names, nodeTemplate)
	}
	if near := spelling.Nearest(name, names); near != "" {
		return "; did you mean {{" + near + "}}?"
	}
	return ""
}

const (
	maxNames     = 10 // of properties in a message
	maxNameRunes = 64
)

// namesOf lists the properties that there are, by name; their values are nobody's business.
func namesOf(properties map[string]string) string {
	if len(properties) == 0 {
		return "there is none"
	}
	names := slices.Sorted(maps.Keys(properties))
	var shown []string
	for _, name := range names[:min(len(names), maxNames)] {
		if runes := []rune(name); len(runes) > maxNameRunes {
			name = string(runes[:maxNameRunes-1]) + "…"
		}
		shown = append(shown, strconv.Quote(name))
	}
	text := "there are " + strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// expandPod replaces the templates in the containers of a pod, which is changed.
func (v values) expandPod(p *corev1.PodSpec) error {
	v.kubelet = true
	var errs []error
	for _, of := range []struct {
		kind       string
		containers []corev1.Container
	}{{"initContainers", p.InitContainers}, {"containers", p.Containers}} {
		for i := range of.containers {
			c := &of.containers[i]
			slots := amount(c, placeholder)
			replace := func(field string, text *string) {
				var err error
				if *text, err = v.expand(*text, slots); err != nil {
					errs = append(errs, fmt.Errorf("%s[%d].%s: %w", of.kind, i, field, err))
				}
			}
			for j := range c.Env {
				replace(fmt.Sprintf("env[%d].value", j), &c.Env[j].Value)
			}
			for j := range c.Command {
				replace(fmt.Sprintf("command[%d]", j), &c.Command[j])
			}
			for j := range c.Args {
				replace(fmt.Sprintf("args[%d]", j), &c.Args[j])
			}
		}
	}
	return errors.Join(errs...)
}

// expandMap returns the map with the templates in its values replaced.
func (v values) expandMap(field string, in map[string]string, slots int64) (map[string]string, error) {
	out := maps.Clone(in)
	var errs []error
	for key, text := range in {
		var err error
		if out[key], err = v.expand(text, slots); err != nil {
			errs = append(errs, fmt.Errorf("%s[%s]: %w", field, key, err))
		}
	}
	return out, errors.Join(errs...)
}
