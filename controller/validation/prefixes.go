package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// withheldWarnings says which brokerProperties not every container gets as variables, and
// what to do.
func withheldWarnings(spec *akriv0.ConfigurationSpec) (warnings []string) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(spec.BrokerProperties)) {
		if len(validation.IsRelaxedEnvVarName(name)) == 0 && !spec.MayBeVariable(name) {
			names = append(names, name)
			warnings = append(warnings, withheld(spec, name))
		}
	}
	if remedy := remedy(spec, names); remedy != "" {
		warnings = append(warnings, "spec.propertyPrefixes: to have all containers get these brokerProperties by their names, "+remedy)
	}
	return warnings
}

// withheld says who does not get a name in brokerProperties as a variable.
func withheld(spec *akriv0.ConfigurationSpec, name string) string {
	who, instead := "no container gets", "containers"
	if spec.HasBroker() && spec.MayBeBrokerVariable(name) {
		who, instead = "brokers alone get", "other containers"
	}
	return fmt.Sprintf("spec.brokerProperties[%s]: %s a variable of that name, since spec.propertyPrefixes does not let it: %s get it as %s_<HASH> and in AKRI_DEVICES",
		quoted(name), who, instead, quoted(name))
}

// Withheld says which brokerProperties no container gets as variables of their names, so
// that what the Configuration's author wrote has no effect; "" for none.
func Withheld(spec *akriv0.ConfigurationSpec) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(spec.BrokerProperties)) {
		if !spec.MayBeVariable(name) && !(spec.HasBroker() && spec.MayBeBrokerVariable(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	remedy := remedy(spec, names)
	for i, name := range names {
		names[i] = quoted(name)
	}
	if n := len(names) - maxMessageErrors; n > 0 {
		names = append(names[:maxMessageErrors], fmt.Sprintf("and %d more", n))
	}
	message := fmt.Sprintf("no container gets these brokerProperties as variables of their names, since spec.propertyPrefixes does not let it: %s. Containers have them as <NAME>_<HASH> and in AKRI_DEVICES",
		strings.Join(names, ", "))
	if remedy != "" {
		message += ". To have them by their names, in spec.propertyPrefixes " + remedy
	}
	return message
}

// handlerPrefixes are those of DefaultPropertyPrefixes with which the properties begin
// that a handler reports, that of Kubeslot or Akri's of the same name.
var handlerPrefixes = map[string][]string{
	"debugEcho": {"DEBUG_ECHO_"},
	"mdns":      {"MDNS_"},
	"onvif":     {"ONVIF_"},
	"opcua":     {"OPCUA_"},
	"udev":      {"PCI_RESOURCE_", "UDEV_", "USB_"},
	"usb":       {"USB_"},
}

// The longest list of prefixes that is proposed. Longer names are seldom meant one by one.
const (
	maxProposed       = 32
	maxProposedLength = 64
)

// remedy says what to do about spec.propertyPrefixes so that all containers get the
// brokerProperties of these names by their names, and lose none that they get now; ""
// when no list would let them.
func remedy(spec *akriv0.ConfigurationSpec, names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !canBeVariable(name) })
	if len(names) == 0 {
		return ""
	}
	if len(spec.PropertyPrefixes) > 0 {
		if tooMany(names) {
			return "add how their names begin"
		}
		return "add " + strings.Join(names, ", ")
	}
	list := instead(spec)
	if tooMany(list) {
		return "set how their names begin, and those of the devices' properties; a list replaces the defaults"
	}
	return fmt.Sprintf("set [%s]; a list replaces the defaults, so it names those that are used here, too", strings.Join(list, ", "))
}

func tooMany(prefixes []string) bool {
	return len(prefixes) > maxProposed || slices.ContainsFunc(prefixes, func(p string) bool { return len(p) > maxProposedLength })
}

// instead is a list of prefixes that lets all containers get what the defaults let them get
// of this Configuration, and all its brokerProperties. It ends where there are tooMany.
func instead(spec *akriv0.ConfigurationSpec) []string {
	list := &akriv0.ConfigurationSpec{PropertyPrefixes: handlerPrefixes[spec.DiscoveryHandler.Name]}
	if len(list.PropertyPrefixes) == 0 { // the handler may report anything
		list.PropertyPrefixes = akriv0.DefaultPropertyPrefixes
	}
	list.PropertyPrefixes = slices.Clone(list.PropertyPrefixes)
	for _, name := range slices.Sorted(maps.Keys(spec.BrokerProperties)) {
		if len(list.PropertyPrefixes) > maxProposed {
			break
		}
		if canBeVariable(name) && !list.MayBeVariable(name) {
			list.PropertyPrefixes = append(list.PropertyPrefixes, name)
		}
	}
	return list.PropertyPrefixes
}

// canBeVariable reports whether some list of prefixes lets a property be a variable.
func canBeVariable(name string) bool {
	return (&akriv0.ConfigurationSpec{PropertyPrefixes: []string{name}}).MayBeVariable(name)
}
