package opcua

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
)

func TestDetails(t *testing.T) {
	standard := func(urls ...string) string {
		return "opcuaDiscoveryMethod:\n  standard:\n    discoveryUrls: [\"" + strings.Join(urls, `", "`) + "\"]\n"
	}
	many := make([]string, maxURLs+1)
	for i := range many {
		many[i] = fmt.Sprintf("opc.tcp://10.0.0.1:%d/", i+1)
	}
	type want struct {
		URLs, Addresses []string
		OnNetwork       bool
		Names           *discovery.FilterList
	}
	for name, tc := range map[string]struct {
		details  string
		want     want
		warnings int
		wantErr  string // a part of the error
	}{
		"as Akri's chart renders it": {
			details: "opcuaDiscoveryMethod: \n  standard: \n    discoveryUrls:\n    - opc.tcp://10.1.3.4:4840/Quickstarts/\n" +
				"applicationNames:\n  action: Include\n  items: \n  - Some application name\n",
			want: want{URLs: []string{"opc.tcp://10.1.3.4:4840/Quickstarts/"}, Addresses: []string{"10.1.3.4:4840"},
				Names: &discovery.FilterList{Action: "Include", Items: []string{"Some application name"}}},
		},
		"Akri's default": {
			details: "opcuaDiscoveryMethod: {standard: {}}",
			want:    want{URLs: []string{"opc.tcp://localhost:4840/"}, Addresses: []string{"localhost:4840"}},
		},
		"no URLs": {details: "opcuaDiscoveryMethod: {standard: {discoveryUrls: []}}"},
		"each once": {
			details: standard("opc.tcp://a:1/", "opc.tcp://b:2", "opc.tcp://a:1/"),
			want:    want{URLs: []string{"opc.tcp://a:1/", "opc.tcp://b:2"}, Addresses: []string{"a:1", "b:2"}},
		},
		"without a port": {
			details: standard("opc.tcp://plc/path", "OPC.TCP://[fe80::1%25eth0]"),
			want:    want{URLs: []string{"opc.tcp://plc/path", "OPC.TCP://[fe80::1%25eth0]"}, Addresses: []string{"plc:4840", "[fe80::1%eth0]:4840"}},
		},
		"on the network": {
			details: "opcuaDiscoveryMethod: {standard: {discoveryUrls: [], serversOnNetwork: true}}",
			want:    want{OnNetwork: true},
		},
		"unknown keys": {
			details: "opcuaDiscoveryMethod: {standard: {discoveryUrls: []}, scan: {}}\ncolour: red", warnings: 2,
		},
		"empty":                  {details: "", wantErr: "opcuaDiscoveryMethod.standard is missing"},
		"no method":              {details: "opcuaDiscoveryMethod: {}", wantErr: "opcuaDiscoveryMethod.standard is missing"},
		"wrong type":             {details: "opcuaDiscoveryMethod: {standard: {discoveryUrls: opc.tcp://a:1/}}", wantErr: "discoveryUrls"},
		"another scheme":         {details: standard("opc.tcp://a:1/", "http://a:1/"), wantErr: `discoveryUrls[1]: "http://a:1/": want opc.tcp://<host>:<port>/`},
		"no scheme":              {details: standard("10.1.3.4:4840"), wantErr: "discoveryUrls[0]"},
		"no host":                {details: standard("opc.tcp://:4840/"), wantErr: "want opc.tcp://<host>:<port>/"},
		"no port behind a colon": {details: standard("opc.tcp://a:0/"), wantErr: "1 to 65535"},
		"a port too high":        {details: standard("opc.tcp://a:65536/"), wantErr: "1 to 65535"},
		"credentials":            {details: standard("opc.tcp://me:secret@a:1/"), wantErr: "want opc.tcp://<host>:<port>/"},
		"a control character":    {details: standard(`opc.tcp://a:1/\u0000`), wantErr: "is not a URL"},
		"a long URL":             {details: standard("opc.tcp://a:1/" + strings.Repeat("x", maxURLBytes)), wantErr: "discoveryUrls[0]: a URL of 4110 bytes"},
		"many URLs":              {details: standard(many...), wantErr: "discoveryUrls has 1001 entries"},
		"names without items":    {details: "opcuaDiscoveryMethod: {standard: {}}\napplicationNames: {action: Include}", wantErr: "applicationNames.items"},
	} {
		t.Run(name, func(t *testing.T) {
			warnings := 0
			p, err := parse(discovery.Request{Details: tc.details, Warn: func(string) { warnings++ }})
			if tc.wantErr != "" {
				if !errors.Is(err, discovery.ErrInvalid) || !strings.Contains(err.Error(), tc.wantErr) || len(err.Error()) > 500 {
					t.Fatalf("parse() = %v, want a short ErrInvalid with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := want{OnNetwork: p.onNetwork, Names: p.names}
			for _, target := range p.targets {
				got.URLs, got.Addresses = append(got.URLs, target.url), append(got.Addresses, target.address())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("parse() (-want +got):\n%s", diff)
			}
			if warnings != tc.warnings {
				t.Errorf("%d warnings, want %d", warnings, tc.warnings)
			}
		})
	}
}

func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"opc.tcp://10.1.3.4:4840/Quickstarts/?a=b#c", "opc.tcp://[::1]:1", "opc.tcp://[fe80::1%25eth0]/", "opc.tcp://a%25b/", "opc.tcp://%00:1/", "opc.tcp://a b:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := parseTarget(text)
		if err != nil {
			return
		}
		// What is made of it is a URL of the same endpoint.
		again, err := parseTarget(urlOf(at.host, at.port, at.path))
		if err != nil || again.address() != at.address() || again.path != at.path {
			t.Errorf("parseTarget(%q) = %+v, and of what was made of it %+v, %v", text, at, again, err)
		}
	})
}
