package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeslot/kubeslot/discovery"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// local are the handlers that find devices of their own node.
var local = []string{"udev", "usb"}

// discoveryHandler asks the handler's own parser about the details, with the properties
// whose values are written in the Configuration. A handler that is not known may take
// anything.
func (c *Checker) discoveryHandler(f *Findings, path *field.Path, spec *akriv0.ConfigurationSpec) {
	of := &spec.DiscoveryHandler
	validate := c.handlers[of.Name]
	if validate == nil {
		names := slices.Sorted(maps.Keys(c.handlers))
		if meant := spelling.DidYouMean(strings.TrimSpace(of.Name), names); meant != "" {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%s: %q is none of Kubeslot's handlers%s Case and blanks count", path.Child("name"), quoted(of.Name), meant))
		}
		return
	}
	if spec.Discovery != nil && slices.Contains(local, of.Name) {
		f.Errors = append(f.Errors, field.Forbidden(field.NewPath("spec", "discovery"),
			fmt.Sprintf("devices that %s finds are part of their node, which no other node can discover or reach", of.Name)))
	}
	path = path.Child("discoveryDetails")
	// The handlers' messages name it themselves.
	short := func(message string) string {
		message = strings.TrimPrefix(message, "discoveryDetails of "+of.Name)
		return strings.Join(strings.Fields(strings.TrimPrefix(message, ":")), " ")
	}
	request := discovery.Request{
		Details:    of.DiscoveryDetails,
		Properties: map[string][]byte{},
		Warn: func(message string) {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%s: %s", path, short(message)))
		},
	}
	for _, p := range of.DiscoveryProperties {
		if p.Value != nil {
			request.Properties[p.Name] = []byte(*p.Value)
		}
	}
	if err := validate(request); err != nil {
		f.Errors = append(f.Errors, field.Invalid(path, field.OmitValueType{}, short(err.Error())))
	}
}
