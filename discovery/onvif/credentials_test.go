package onvif

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
)

func TestCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		properties map[string][]byte
		want       credentials
		warning    string // a part of the only one
	}{
		"none": {want: credentials{}},
		"lists": {
			properties: propertiesOf(credentialList, `["a", "b"]`,
				"a", `{"U-1": {"username": "n1", "password": "p1"}, "u-2": {"username": "n2", "password": "YWRtaW4=", "base64encoded": true}}`,
				"b", `{"u-1": {"username": "later"}}`),
			want: credentials{"u-1": {"later", ""}, "u-2": {"n2", "admin"}},
		},
		"references override lists": {
			properties: propertiesOf(credentialList, `["a"]`, "a", `{"u": {"username": "list", "password": "x"}}`,
				credentialRefList, `["r"]`, "r", `{"u": {"username_ref": "n", "password_ref": "p"}, "v": {"username_ref": "n"}}`, "n", "name", "p", "word"),
			want: credentials{"u": {"name", "word"}, "v": {"name", ""}},
		},
		"single properties override references": {
			properties: propertiesOf(credentialRefList, `["r"]`, "r", `{"u-v": {"username_ref": "n"}}`, "n", "name", "username_u_v", "single", "password_u_v", "x"),
			want:       credentials{"u-v": {"single", "x"}},
		},
		"default":                   {properties: propertiesOf("username_default", "n"), want: credentials{"default": {"n", ""}}},
		"a password alone":          {properties: propertiesOf("password_default", "n", "username_", "x"), want: credentials{}},
		"other properties":          {properties: propertiesOf("x", "y"), want: credentials{}},
		"a list that is no JSON":    {properties: propertiesOf(credentialList, `a`), want: credentials{}, warning: "device_credential_list is no JSON list"},
		"a list of numbers":         {properties: propertiesOf(credentialRefList, `[1]`), want: credentials{}, warning: "device_credential_ref_list is no JSON list"},
		"a name of nothing":         {properties: propertiesOf(credentialList, `["a"]`), want: credentials{}, warning: `names "a", which is not there`},
		"an object that is none":    {properties: propertiesOf(credentialList, `["a"]`, "a", "[]"), want: credentials{}, warning: "a is no JSON object of credentials"},
		"no username":               {properties: propertiesOf(credentialList, `["a"]`, "a", `{"u": {}}`), want: credentials{}, warning: `a has no username for "u"`},
		"no base64":                 {properties: propertiesOf(credentialList, `["a"]`, "a", `{"u": {"username": "n", "password": "%", "base64encoded": true}}`), want: credentials{"u": {"n", ""}}, warning: "is not base64"},
		"base64 of binary":          {properties: propertiesOf(credentialList, `["a"]`, "a", `{"u": {"username": "n", "password": "/w==", "base64encoded": true}}`), want: credentials{"u": {"n", ""}}, warning: "is not base64 of text"},
		"a reference to nothing":    {properties: propertiesOf(credentialRefList, `["r"]`, "r", `{"u": {"username_ref": "n"}}`), want: credentials{}, warning: `r names "n"`},
		"references that are none":  {properties: propertiesOf(credentialRefList, `["r"]`, "r", `{"u": "n"}`), want: credentials{}, warning: "r is no JSON object of references"},
		"a username that is binary": {properties: propertiesOf("username_u", "\xc8\xc8"), want: credentials{}, warning: "username_u is not UTF-8"},
		"a password that is binary": {properties: propertiesOf("username_u", "n", "password_u", "\xc8"), want: credentials{"u": {"n", ""}}, warning: "password_u is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings []string
			got := parseCredentials(discovery.Request{Properties: tc.properties, Warn: func(m string) { warnings = append(warnings, m) }})
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(login{})); diff != "" {
				t.Errorf("credentials (-want +got):\n%s", diff)
			}
			if tc.warning == "" && len(warnings) > 0 || tc.warning != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], tc.warning)) {
				t.Errorf("warnings %q, want %q", warnings, tc.warning)
			}
		})
	}
	c := credentials{"u": {"n", "p"}, "default": {"d", "e"}}
	if u, other := c.of("u"), c.of("other"); *u != c["u"] || *other != c["default"] {
		t.Errorf("of(u) = %v, of(other) = %v", u, other)
	}
	if l := (credentials{}).of("u"); l != nil {
		t.Errorf("a login of nobody: %v", l)
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add(`["a"]`, `{"u": {"username": "n", "password": "YQ==", "base64encoded": true, "username_ref": "a"}}`)
	f.Fuzz(func(t *testing.T, list, entries string) {
		parseCredentials(discovery.Request{Properties: propertiesOf(credentialList, list, credentialRefList, list, "a", entries, "username_x", entries)})
	})
}
