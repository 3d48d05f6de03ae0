package brokerspec

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/controller/naming"
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

// variablePattern matches a property that would be in the name of a variable, wherever in it.
var variablePattern = regexp.MustCompile(`(^|[^$])(\$\$)*\$(\([^)]*)?\{\{property:`)

// maxShown is how much of an unknown template a message shows, in characters.
const maxShown = 65

// Values are what templates stand for.
type Values struct {
	Instance string
	Node     string // "" for a Job, whose node nobody knows yet
	// Property returns a property's value, or why it has none.
	Property func(name string) (string, error)
}

// HasProperty reports whether a spec, as it is written, has a property in a template.
func HasProperty(raw []byte) bool { return strings.Contains(string(raw), "{{"+propertyTemplate) }

// Expand replaces the templates in a text. slots is how many slots of the Instance the container requests, or the
// pod for a label or annotation. kubelet is set for texts in which the kubelet replaces $(VARIABLE): properties come
// from devices, which are not to read the broker's variables, its Secrets among them.
func (v Values) Expand(text string, slots int64, kubelet bool) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	var errs []error
	if kubelet && variablePattern.MatchString(text) {
		errs = append(errs, errors.New("a property after $, or in $(…), names a variable: write $$ for a $, "+
			"and the variable's name in full"))
	}
	expanded := templatePattern.ReplaceAllStringFunc(text, func(match string) string {
		name := match[2 : len(match)-2]
		property, isProperty := strings.CutPrefix(name, propertyTemplate)
		switch {
		case name == instanceTemplate:
			return v.Instance
		case name == nodeTemplate && v.Node != "":
			return v.Node
		case name == nodeTemplate:
			errs = append(errs, errors.New("{{NODE}} is not known in a Job; "+
				"use an env variable with valueFrom.fieldRef spec.nodeName"))
		case name == slotCountTemplate:
			return strconv.FormatInt(slots, 10)
		case isProperty:
			value, err := v.Property(property)
			switch {
			case err != nil:
				errs = append(errs, err)
			case kubelet:
				return strings.ReplaceAll(value, "$", "$$")
			default:
				return value
			}
		default:
			errs = append(errs, fmt.Errorf("unknown template %s; there are {{INSTANCE}}, {{NODE}}, {{SLOT_COUNT}} "+
				"and {{property:NAME}}%s", naming.CutText(match, maxShown), v.meant(name)))
		}
		return match
	})
	return expanded, errors.Join(errs...)
}

// meant proposes the template that a misspelt one was meant to be; "" when none is near.
func (v Values) meant(name string) string {
	names := []string{instanceTemplate, slotCountTemplate}
	if v.Node != "" {
		names = append(names, nodeTemplate)
	}
	if near := spelling.Nearest(name, names); near != "" {
		return "; did you mean {{" + near + "}}?"
	}
	return ""
}

// Text is one of a container in which templates are replaced.
type Text struct {
	Field string // of the container
	Value *string
}

// Texts are those of a container.
func Texts(c *corev1.Container) []Text {
	var all []Text
	for i := range c.Env {
		all = append(all, Text{fmt.Sprintf("env[%d].value", i), &c.Env[i].Value})
	}
	for i := range c.Command {
		all = append(all, Text{fmt.Sprintf("command[%d]", i), &c.Command[i]})
	}
	for i := range c.Args {
		all = append(all, Text{fmt.Sprintf("args[%d]", i), &c.Args[i]})
	}
	return all
}
