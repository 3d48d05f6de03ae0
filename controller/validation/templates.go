package validation

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeslot/kubeslot/types/spelling"
)

// placeholder stands in a broker's spec for the resource of the Instance.
const placeholder = corev1.ResourceName("{{PLACEHOLDER}}")

var (
	// templatePattern matches what package brokers takes for a template.
	templatePattern = regexp.MustCompile(`\{\{([A-Z][A-Z0-9_]*|property:[^{}]*)\}\}`)
	// variablePattern matches a property that would be, or begin, the name of a variable.
	variablePattern = regexp.MustCompile(`(^|[^$])(\$\$)*\$\(?\{\{property:`)
)

// template returns an error for a template in the text that no Instance could fill in.
// Which properties a device has is known only when it is there. kubelet is set for texts
// in which the kubelet replaces $(VARIABLE).
func template(text string, job, kubelet bool) error {
	if !strings.Contains(text, "{{") {
		return nil
	}
	var errs []error
	if kubelet && variablePattern.MatchString(text) {
		errs = append(errs, errors.New("a property after $ or $( names a variable: write $$ for a $, and the variable's name in full"))
	}
	for _, match := range templatePattern.FindAllStringSubmatch(text, -1) {
		property, isProperty := strings.CutPrefix(match[1], "property:")
		switch {
		case match[1] == "INSTANCE" || match[1] == "SLOT_COUNT" || match[1] == "NODE" && !job || isProperty && property != "":
		case match[1] == "NODE":
			errs = append(errs, errors.New("{{NODE}} is not known in a Job; use an env variable with valueFrom.fieldRef spec.nodeName"))
		case isProperty:
			errs = append(errs, fmt.Errorf("%s names no property", match[0]))
		default:
			errs = append(errs, fmt.Errorf("unknown template %s; there are {{INSTANCE}}, {{NODE}}, {{SLOT_COUNT}} and {{property:NAME}}%s", quoted(match[0]), meant(match[1], job)))
		}
	}
	return errors.Join(errs...)
}

// meant proposes the template that a misspelt one was meant to be; "" when none is near.
func meant(name string, job bool) string {
	names := []string{"INSTANCE", "SLOT_COUNT"}
	if !job {
		names = append(names, "NODE")
	}
	if near := spelling.Nearest(name, names); near != "" {
		return "; did you mean {{" + near + "}}?"
	}
	return ""
}

// templates checks all texts of a container in which templates are replaced.
func templates(path *field.Path, c *corev1.Container, job bool) (errs field.ErrorList) {
	look := func(path *field.Path, text string) {
		if err := template(text, job, true); err != nil {
			errs = append(errs, field.Invalid(path, shown(text), oneLine(err)))
		}
	}
	for i := range c.Env {
		look(path.Child("env").Index(i).Child("value"), c.Env[i].Value)
	}
	for i := range c.Command {
		look(path.Child("command").Index(i), c.Command[i])
	}
	for i := range c.Args {
		look(path.Child("args").Index(i), c.Args[i])
	}
	return errs
}

// templatesIn checks the labels or annotations of a Job's pods.
func templatesIn(path *field.Path, texts map[string]string) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if err := template(texts[key], true, false); err != nil {
			errs = append(errs, field.Invalid(path.Key(quoted(key)), shown(texts[key]), oneLine(err)))
		}
	}
	return errs
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
