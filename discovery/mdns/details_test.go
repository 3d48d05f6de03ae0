package mdns

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
)

func TestDetails(t *testing.T) {
	for name, tc := range map[string]struct {
		details string
		want    string // the services' types and queries
		wantErr string
		warns   string
	}{
		"one":               {details: "services: [_http._tcp]", want: "_http._tcp=_http._tcp.local"},
		"with the domain":   {details: `services: ["_http._tcp.local.", _IPP._tcp.local]`, want: "_http._tcp=_http._tcp.local _ipp._tcp=_ipp._tcp.local"},
		"udp":               {details: "services: [_sleep-proxy._udp]", want: "_sleep-proxy._udp=_sleep-proxy._udp.local"},
		"a subtype":         {details: "services: [_color._sub._ipp._tcp]", want: "_ipp._tcp=_color._sub._ipp._tcp.local"},
		"twice the same":    {details: "services: [_http._tcp, _HTTP._tcp]", want: "_http._tcp=_http._tcp.local"},
		"filters":           {details: "{services: [_a._tcp], name: {items: []}, txt: {Model: {action: Exclude, items: [x]}}}", want: "_a._tcp=_a._tcp.local"},
		"an unknown key":    {details: "{services: [_a._tcp], colour: red}", want: "_a._tcp=_a._tcp.local", warns: "colour"},
		"nothing":           {wantErr: "services has 0 items"},
		"no list":           {details: "services: _http._tcp", wantErr: "services"},
		"an empty list":     {details: "services: []", wantErr: "services has 0 items"},
		"too many":          {details: "services: [" + strings.Repeat("_a._tcp, ", maxServices+1) + "]", wantErr: "services has 65 items"},
		"no underscore":     {details: "services: [http._tcp]", wantErr: `services[0]: "http._tcp" does not begin with _`},
		"no protocol":       {details: "services: [_http._tcp, _http]", wantErr: `services[1]: "_http" does not have two parts`},
		"another protocol":  {details: "services: [_http._sctp]", wantErr: "does not end in _tcp or _udp"},
		"a name too long":   {details: "services: [_" + strings.Repeat("a", 63) + "._tcp]", wantErr: "64 bytes"},
		"not a name":        {details: "services: ['_ht tp._tcp']", wantErr: "other characters"},
		"another domain":    {details: "services: [_http._tcp.example.com]", wantErr: "two parts"},
		"empty":             {details: "services: ['']", wantErr: "two parts"},
		"bad filter":        {details: "{services: [_a._tcp], name: {action: include, items: []}}", wantErr: "mdns: name.action"},
		"bad TXT filter":    {details: "{services: [_a._tcp], txt: {k: {}}}", wantErr: `mdns: txt["k"].items`},
		"bad TXT key":       {details: "{services: [_a._tcp], txt: {k=v: {items: []}}}", wantErr: "cannot be a key"},
		"TXT key twice":     {details: "{services: [_a._tcp], txt: {k: {items: []}, K: {items: []}}}", wantErr: "is there twice"},
		"published keys":    {details: "{services: [_a._tcp], txtKeys: [Model, fw]}", want: "_a._tcp=_a._tcp.local"},
		"no published keys": {details: "{services: [_a._tcp], txtKeys: []}", want: "_a._tcp=_a._tcp.local"},
		"bad published key": {details: "{services: [_a._tcp], txtKeys: [a, k=v]}", wantErr: `mdns: txtKeys[1] is "k=v"`},
		"an empty one":      {details: "{services: [_a._tcp], txtKeys: ['']}", wantErr: `mdns: txtKeys[0] is ""`},
		"too many of them": {
			details: "{services: [_a._tcp], txtKeys: [" + strings.Repeat("a, ", maxTXTKeys+1) + "]}",
			wantErr: "txtKeys has 65 items"},
		"no list of them":   {details: "{services: [_a._tcp], txtKeys: a}", wantErr: "txtKeys: want a list of strings"},
		"wrong type of TXT": {details: "{services: [_a._tcp], txt: {k: v}}", wantErr: "txt"},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings []string
			d, err := parse(discovery.Request{Details: tc.details, Warn: func(m string) { warnings = append(warnings, m) }})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !errors.Is(err, discovery.ErrInvalid) {
					t.Fatalf("parse() = %v, want an error with %q that wraps ErrInvalid", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range d.services {
				got = append(got, s.text+"="+s.query.String())
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("services (-want +got):\n%s", diff)
			}
			if got := strings.Join(warnings, "\n"); !strings.Contains(got, tc.warns) || tc.warns == "" && got != "" {
				t.Errorf("warned %q, want %q", got, tc.warns)
			}
		})
	}
}

func instanceNamed(label string, txt ...string) found {
	data := ""
	for _, item := range txt {
		data += string([]byte{byte(len(item))}) + item
	}
	return found{
		label: label, service: service{text: "_http._tcp"}, host: "lamp.local", port: 80,
		addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}, txt: data,
	}
}

func TestFilters(t *testing.T) {
	lamp := instanceNamed("Kitchen Lamp", "Model=X", "fw=1.2", "fw=1.3", "battery")
	for details, want := range map[string]bool{
		"":                              true,
		"name: {items: [kitchen lamp]}": true, // case does not count
		"name: {items: [lamp]}":         false,
		"name: {items: []}":             false,
		"name: {action: Exclude, items: [KITCHEN LAMP]}": false,
		"name: {action: Exclude, items: [other]}":        true,
		"txt: {model: {items: [W, X]}}":                  true, // a key's case does not count
		"txt: {model: {items: [x]}}":                     false,
		"txt: {MODEL: {action: Exclude, items: [X]}}":    false,
		"txt: {fw: {items: ['1.2']}}":                    true, // of equal keys the first
		"txt: {fw: {items: ['1.3']}}":                    false,
		"txt: {battery: {items: ['']}}":                  true,
		"txt: {absent: {items: ['']}}":                   false,
		"txt: {absent: {action: Exclude, items: ['']}}":  true,
		"txt: {absent: null}":                            true,
		"txt: {model: {items: [X]}, fw: {items: [Y1]}}":  false, // all of them must let it through
	} {
		d, err := parse(discovery.Request{Details: "services: [_http._tcp]\n" + details})
		if err != nil {
			t.Fatalf("%s: %v", details, err)
		}
		if got := d.keeps(&lamp); got != want {
			t.Errorf("%s: keeps() = %t, want %t", details, got, want)
		}
	}
}

// A key that changes often is no property unless it is named, and so changes no device.
func TestPublishedTXTKeys(t *testing.T) {
	many := []string{"state=idle"}
	for i := range maxTXTKeys {
		many = append(many, fmt.Sprintf("k%d=", i))
	}
	idle := instanceNamed("Lamp", append(many, "Model=X")...)
	busy := instanceNamed("Lamp", append(slices.Clone(many), "Model=X", "state=busy")[1:]...)
	for keys, want := range map[string]string{
		"": "idle", "txtKeys: []": "", "txtKeys: [MODEL]": "model", "txtKeys: [State, model]": "model idle",
	} {
		d, err := parse(discovery.Request{Details: "services: [_http._tcp]\n" + keys})
		if err != nil {
			t.Fatal(err)
		}
		before := d.devices([]found{idle}, nil)["Lamp._http._tcp"]
		var got []string
		if before.Properties["MDNS_TXT_MODEL"] == "X" {
			got = append(got, "model")
		}
		if before.Properties["MDNS_TXT_STATE"] == "idle" {
			got = append(got, "idle")
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: properties (-want +got):\n%s", keys, diff)
		}
		after := d.devices([]found{busy}, nil)["Lamp._http._tcp"]
		if changed := !reflect.DeepEqual(before, after); changed != strings.Contains(want, "idle") {
			t.Errorf("%s: another state changes the device: %t", keys, changed)
		}
	}
}

func TestProperties(t *testing.T) {
	f := instanceNamed("Lamp", "model=X", "a.b=1", "a-b=2", "flag", "=no key", "m\xc3\xb6=not ASCII", "bin=\xff\x00", "nul=a\x00b", "eq=a=b", "MODEL=Y")
	got := f.device(nil)
	want := discovery.Device{ID: "Lamp._http._tcp", Properties: map[string]string{
		"MDNS_NAME": "Lamp", "MDNS_TYPE": "_http._tcp", "MDNS_HOST": "lamp.local", "MDNS_PORT": "80",
		"MDNS_ADDRESS": "10.0.0.7", "MDNS_ADDRESSES": "10.0.0.7,fd00::7",
		"MDNS_TXT_MODEL": "X", "MDNS_TXT_A_B": "1", "MDNS_TXT_FLAG": "", "MDNS_TXT_EQ": "a=b",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("device() (-want +got):\n%s", diff)
	}
}

// While an old address expires, what was told stands; a device that is new is told as it is.
func TestAChangeIsToldOnce(t *testing.T) {
	d := &details{}
	old := instanceNamed("Lamp")
	before := d.devices([]found{old}, nil)
	changing := instanceNamed("Lamp")
	changing.addresses = append(changing.addresses, netip.MustParseAddr("10.0.0.8"))
	changing.changing = true
	fresh := instanceNamed("New")
	fresh.changing = true

	after := d.devices([]found{changing, fresh}, before)
	if diff := cmp.Diff(before["Lamp._http._tcp"], after["Lamp._http._tcp"]); diff != "" {
		t.Errorf("a changing device (-before +after):\n%s", diff)
	}
	if _, ok := after["New._http._tcp"]; !ok {
		t.Errorf("a new device is missing: %v", after)
	}
	changing.changing = false
	after = d.devices([]found{changing}, before)
	if got := after["Lamp._http._tcp"].Properties[AddressesProperty]; got != "10.0.0.7,fd00::7,10.0.0.8" {
		t.Errorf("addresses %q after the change", got)
	}
}

func FuzzService(f *testing.F) {
	for _, s := range []string{"_http._tcp", "_color._sub._ipp._tcp.local.", "._tcp", "_\xff._udp", "_sub._sub._sub._tcp"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseService(text)
		if err != nil {
			return
		}
		if s.query != s.query.fold() || s.base != s.base.fold() || !strings.HasSuffix(string(s.query), string(s.base)) {
			t.Errorf("parseService(%q) = %+v", text, s)
		}
	})
}
