package validation

import (
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
)

// template returns an error for a template in the text that no Instance could fill in.
// Which properties a device has is known only when it is there. kubelet is set for texts
// in which the kubelet replaces $(VARIABLE).
func template(text string, job, kubelet bool) error {
	some := brokerspec.Values{Property: func(name string) (string, error) {
		if name == "" {
			return "", errors.New("{{property:}} names no property")
		}
		return "", nil
	}}
	if !job {
		some.Node = "node"
	}
	_, err := some.Expand(text, 1, kubelet)
	return err
}

// templates checks all texts of a container in which templates are replaced.
func templates(path *field.Path, c *corev1.Container, job bool) (errs field.ErrorList) {
	for _, text := range brokerspec.Texts(c) {
		if err := template(*text.Value, job, true); err != nil {
			errs = append(errs, field.Invalid(path.Child(text.Field), shown(*text.Value), oneLine(err)))
		}
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
