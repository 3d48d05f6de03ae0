package brokers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// values are what templates of the Instance's broker on a node stand for; node is "" for a Job.
func (f *facts) values(node string) brokerspec.Values {
	return brokerspec.Values{Instance: f.instance.Name, Node: node, Property: func(name string) (string, error) {
		if value, ok := f.properties[name]; ok {
			return value, nil
		}
		return "", fmt.Errorf("{{property:%s}}: device and Configuration have no property %q; %s",
			name, name, namesOf(f.properties))
	}}
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
		shown = append(shown, strconv.Quote(naming.CutText(name, maxNameRunes)))
	}
	text := "there are " + strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// expandPod replaces the templates in the containers of a pod, which is changed.
func expandPod(v brokerspec.Values, p *corev1.PodSpec) error {
	var errs []error
	for _, of := range []struct {
		kind       string
		containers []corev1.Container
	}{{"initContainers", p.InitContainers}, {"containers", p.Containers}} {
		for i := range of.containers {
			c := &of.containers[i]
			for _, text := range brokerspec.Texts(c) {
				var err error
				if *text.Value, err = v.Expand(*text.Value, brokerspec.Slots(c), true); err != nil {
					errs = append(errs, fmt.Errorf("%s[%d].%s: %w", of.kind, i, text.Field, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// expandMap returns the map with the templates in its values replaced.
func expandMap(v brokerspec.Values, field string, in map[string]string, slots int64) (map[string]string, error) {
	out := maps.Clone(in)
	var errs []error
	for key, text := range in {
		var err error
		if out[key], err = v.Expand(text, slots, false); err != nil {
			errs = append(errs, fmt.Errorf("%s[%s]: %w", field, key, err))
		}
	}
	return out, errors.Join(errs...)
}
