package validation

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// The details of each handler are checked by its own parser: what a node would refuse is
// refused before, and what it would warn of is told.
func TestDiscoveryDetails(t *testing.T) {
	const at = "spec.discoveryHandler.discoveryDetails: "
	for name, tc := range map[string]struct {
		handler, details string
		properties       []akriv0.DiscoveryProperty
		discovery        *akriv0.Discovery
		error, warning   string
	}{
		"another's handler":    {handler: "sonar", details: "{"},
		"udev":                 {handler: "udev", details: `udevRules: ['KERNEL=="video[0-9]*", ATTRS{idVendor}=="046d"']`},
		"a rule":               {handler: "udev", details: `udevRules: ['KERNEL=="video*", SUBSYSTEM="video4linux"']`, error: at + "Invalid value: udevRules[0], column 28: \"=\" sets something"},
		"the second rule":      {handler: "udev", details: `udevRules: ['KERNEL=="a"', 'NAME=="b"']`, error: at + "Invalid value: udevRules[1], column 1: NAME cannot select devices"},
		"no rules":             {handler: "udev", details: ``, error: at + "Invalid value: udevRules, the list of rules that select devices, is missing"},
		"mistyped":             {handler: "udev", details: `udevRules: 7`, error: at + "Invalid value: udevRules: want a list of strings, it is a number"},
		"permissions":          {handler: "udev", details: `{udevRules: [], permissions: wr}`, error: at + `Invalid value: permissions is "wr": want one of r, w`},
		"misspelt":             {handler: "udev", details: `{udevRules: [], groupRecursiv: true}`, warning: at + `unknown field "groupRecursiv": ignored`},
		"no YAML":              {handler: "udev", details: "a: [", error: at + "Invalid value: not YAML: "},
		"twice":                {handler: "udev", details: "udevRules: []\nudevRules: []", error: at + "Invalid value: not YAML: "},
		"too long":             {handler: "udev", details: strings.Repeat("#", 256<<10+1), error: at + "Invalid value: 262145 bytes, of 262144 that are allowed"},
		"udev of another case": {handler: "Udev", details: "a: [", warning: `spec.discoveryHandler.name: "Udev" is none of Kubeslot's handlers; did you mean "udev"?`},
		"a misspelt handler":   {handler: "onviff", warning: `spec.discoveryHandler.name: "onviff" is none of Kubeslot's handlers; did you mean "onvif"?`},
		"a few nodes of udev":  {handler: "udev", details: `udevRules: []`, discovery: &akriv0.Discovery{}, error: "spec.discovery: Forbidden: devices that udev finds are part of their node"},
		"a few nodes of usb":   {handler: "usb", details: `devices: [{vendor: "0403"}]`, discovery: &akriv0.Discovery{}, error: "spec.discovery: Forbidden: devices that usb finds"},
		"a few nodes of onvif": {handler: "onvif", discovery: &akriv0.Discovery{}},

		"debugEcho":         {handler: "debugEcho", details: "descriptions: [a]"},
		"debugEcho without": {handler: "debugEcho", details: "{}", error: at + "Invalid value: descriptions, the list of devices to find, is missing"},
		"onvif":             {handler: "onvif", details: "{}"},
		"onvif's filter":    {handler: "onvif", details: "ipAddresses: {action: Perhaps, items: []}", error: at + `Invalid value: ipAddresses.action is "Perhaps"`},
		"opcua":             {handler: "opcua", details: "opcuaDiscoveryMethod: {standard: {discoveryUrls: [opc.tcp://10.0.0.1:4840/]}}"},
		"opcua's URL":       {handler: "opcua", details: "opcuaDiscoveryMethod: {standard: {discoveryUrls: ['http://10.0.0.1/']}}", error: at + "Invalid value: opcuaDiscoveryMethod.standard.discoveryUrls[0]: "},
		"opcua without":     {handler: "opcua", details: "{}", error: at + "Invalid value: opcuaDiscoveryMethod"},
		"usb":               {handler: "usb", details: `devices: [{vendor: "0403", product: "6001"}]`},
		"usb's number":      {handler: "usb", details: "devices: [{vendor: 0403}]", error: at + "Invalid value: 259 is not a string"},
		"mdns":              {handler: "mdns", details: "services: [_http._tcp]"},
		"mdns's service":    {handler: "mdns", details: "services: [http]", error: at + `Invalid value: services[0]: "http" does not have two parts`},
	} {
		t.Run(name, func(t *testing.T) {
			c := &akriv0.Configuration{Spec: akriv0.ConfigurationSpec{Discovery: tc.discovery,
				DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: tc.handler, DiscoveryDetails: tc.details, DiscoveryProperties: tc.properties}}}
			found := checker(t).Check(c)
			expect(t, "errors", errorsOf(found.Errors), some(tc.error))
			expect(t, "warnings", found.Warnings, some(tc.warning))
		})
	}
}

func some(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// Whoever has a handler of their own under a known name takes it out.
func TestOnlyNamedHandlersAreChecked(t *testing.T) {
	c, err := NewChecker([]string{"onvif"})
	if err != nil {
		t.Fatal(err)
	}
	for handler, want := range map[string]int{"udev": 0, "onvif": 1} {
		found := c.Check(&akriv0.Configuration{Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: handler, DiscoveryDetails: "uuids: 7"}}})
		if len(found.Errors) != want {
			t.Errorf("%s: %v", handler, found.Errors)
		}
	}
}

// hostileDetails are as long as they may be, and as much work as they can be.
func hostileDetails() map[string]string {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 8), i-1)
	}
	return map[string]string{
		"aliases of aliases": bomb + "udevRules: *a9",
		"deep lists":         "udevRules: " + strings.Repeat("[", 100_000),
		"deep maps":          strings.Repeat("{a: ", 60_000),
		"many keys":          keys(20_000),
		"long rules":         "udevRules:\n" + strings.Repeat("- "+strings.Repeat(`KERNEL=="*a*a*a*a*a*a*a*",`, 600)+"\n", 15),
		"a long expression":  `udevRules: ['DRIVERS=="` + strings.Repeat(`(a*)*`, 3000) + `"']`,
		"control characters": "udevRules: ['\x01\u2028']",
	}
}

func keys(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "key%d: 1\n", i)
	}
	return text.String()
}

// Whatever the details are, there is an answer, of few lines. Details that are worked on without bound have none.
func TestHostileDetails(t *testing.T) {
	for name, details := range hostileDetails() {
		t.Run(name, func(t *testing.T) {
			c, answer := checker(t), make(chan Findings, 1)
			handler := akriv0.DiscoveryHandlerInfo{Name: "udev", DiscoveryDetails: details}
			go func() {
				answer <- c.Check(&akriv0.Configuration{Spec: akriv0.ConfigurationSpec{DiscoveryHandler: handler}})
			}()
			found := await.Next(t, "an answer", answer).Bounded()
			if len(found.Errors) > maxFindings || len(found.Warnings) > maxFindings+1 {
				t.Errorf("%d errors, %d warnings", len(found.Errors), len(found.Warnings))
			}
			for _, text := range append(errorsOf(found.Errors), found.Warnings...) {
				if len(text) > 2000 || strings.ContainsFunc(text, unicode.IsControl) {
					t.Errorf("says %.100q… of %d bytes", text, len(text))
				}
			}
		})
	}
}
