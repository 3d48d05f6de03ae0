package opcua

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopcua/opcua/ua"

	"github.com/kubeslot/kubeslot/discovery"
)

func mustTarget(t *testing.T, url string) target {
	t.Helper()
	at, err := parseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestWhereAServerIs(t *testing.T) {
	known := map[string]bool{"known": true, "0.0.0.0": true, "10.0.0.9": true, "localhost": true, "127.0.0.1": true, "::1": true}
	for name, tc := range map[string]struct {
		asked     string
		own       []string
		others    bool // a discovery server named it, along with others
		want      string
		wantWarns int
	}{
		"its own URL":                        {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://known:4855/a"}, false, "opc.tcp://known:4855/a", 0},
		"the first of TCP":                   {"opc.tcp://10.0.0.1:4840/", []string{"https://known/", "opc.tcp://known:1", "opc.tcp://10.0.0.9:2"}, false, "opc.tcp://known:1", 0},
		"none of TCP":                        {"opc.tcp://10.0.0.1:4840/", []string{"https://known/"}, false, "", 0},
		"no URL":                             {"opc.tcp://10.0.0.1:4840/", nil, false, "", 0},
		"broken URLs are left out":           {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://", "opc.tcp://known:x/", "opc.tcp://known:1/"}, false, "opc.tcp://known:1/", 0},
		"Akri's: where it answered":          {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://unknown:4840/a/b"}, false, "opc.tcp://10.0.0.1:4840/a/b", 0},
		"Akri's: without a path":             {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://unknown:4840"}, false, "opc.tcp://10.0.0.1:4840/", 0},
		"Akri's: without a slash":            {"opc.tcp://10.0.0.1:4840", []string{"opc.tcp://unknown:4840/a"}, false, "opc.tcp://10.0.0.1:4840/a", 0},
		"Akri's: without both":               {"opc.tcp://10.0.0.1:4840", []string{"opc.tcp://unknown:4840"}, false, "opc.tcp://10.0.0.1:4840", 0},
		"behind a mapped port":               {"opc.tcp://10.0.0.1:14840/", []string{"opc.tcp://unknown:4840/"}, false, "opc.tcp://10.0.0.1:14840/", 0},
		"a path is not doubled":              {"opc.tcp://10.0.0.1:4840/a", []string{"opc.tcp://unknown:4840/a"}, false, "opc.tcp://10.0.0.1:4840/a", 0},
		"IPv6":                               {"opc.tcp://[fd00::1]:4840/", []string{"opc.tcp://unknown:4840/"}, false, "opc.tcp://[fd00::1]:4840/", 0},
		"localhost of another machine":       {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://localhost:4840/"}, false, "opc.tcp://10.0.0.1:4840/", 0},
		"0.0.0.0 of another machine":         {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://0.0.0.0:4840/"}, false, "opc.tcp://10.0.0.1:4840/", 0},
		"localhost that was asked":           {"opc.tcp://127.0.0.1:4840/", []string{"opc.tcp://localhost:4840/"}, false, "opc.tcp://localhost:4840/", 1},
		"named: its own URL":                 {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://known:4855/a"}, true, "opc.tcp://known:4855/a", 0},
		"named: the other URL":               {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://unknown:4855/a", "opc.tcp://10.0.0.9:4855/a"}, true, "opc.tcp://10.0.0.9:4855/a", 0},
		"named: the discovery server's host": {"opc.tcp://10.0.0.1:4840/", []string{"opc.tcp://unknown:4855/a"}, true, "opc.tcp://10.0.0.1:4855/a", 1},
	} {
		t.Run(name, func(t *testing.T) {
			list := []application{{name: "PLC", kind: uint32(ua.ApplicationTypeServer), discoveryURLs: tc.own}}
			if tc.others {
				list = append(list, application{name: "LDS", kind: uint32(ua.ApplicationTypeDiscoveryServer),
					discoveryURLs: []string{tc.asked}})
			}
			asked := mustTarget(t, tc.asked)
			devices, warnings := devicesOf(serversOf(list, nil, maxServers), asked, known)
			got := ""
			for _, d := range devices {
				got += d.ID
			}
			if got != tc.want || len(warnings) != tc.wantWarns {
				t.Errorf("%q with warnings %q, want %q with %d", got, warnings, tc.want, tc.wantWarns)
			}
		})
	}
}

func TestDevices(t *testing.T) {
	url := func(u string) []string { return []string{u} }
	list := []application{
		{name: "Oven", uri: "urn:oven", kind: uint32(ua.ApplicationTypeServer),
			discoveryURLs: url("opc.tcp://10.0.0.1:1/")},
		{name: "oven", kind: uint32(ua.ApplicationTypeServer), discoveryURLs: url("opc.tcp://10.0.0.1:2/")},
		{name: "Mixer\x00\n\xff" + strings.Repeat("é", 1000), kind: uint32(ua.ApplicationTypeServer),
			discoveryURLs: url("opc.tcp://unknown:3/")},
		{name: "Oven", kind: uint32(ua.ApplicationTypeClientAndServer), discoveryURLs: url("opc.tcp://10.0.0.1:4/")},
		{name: "Oven", kind: uint32(ua.ApplicationTypeClient), discoveryURLs: url("opc.tcp://10.0.0.1:5/")},
		{name: "Oven", kind: uint32(ua.ApplicationTypeDiscoveryServer), discoveryURLs: url("opc.tcp://10.0.0.1:6/")},
	}
	device := func(id string, properties ...string) discovery.Device {
		d := discovery.Device{ID: id, Properties: map[string]string{"OPCUA_DISCOVERY_URL": id}}
		for i := 0; i < len(properties); i += 2 {
			d.Properties[properties[i]] = properties[i+1]
		}
		return d
	}
	oven := device("opc.tcp://10.0.0.1:1/", "OPCUA_APPLICATION_NAME", "Oven", "OPCUA_APPLICATION_URI", "urn:oven")
	other := device("opc.tcp://10.0.0.1:2/", "OPCUA_APPLICATION_NAME", "oven")
	mixer := device("opc.tcp://10.0.0.7:3/", "OPCUA_ADVERTISED_URL", "opc.tcp://unknown:3/",
		"OPCUA_APPLICATION_NAME", "Mixer"+strings.Repeat("é", 509))
	for name, tc := range map[string]struct {
		names *discovery.FilterList
		want  []discovery.Device
	}{
		"all servers":     {nil, []discovery.Device{oven, other, mixer}},
		"Include by case": {&discovery.FilterList{Items: []string{"Oven", "Lathe"}}, []discovery.Device{oven}},
		"Include nothing": {&discovery.FilterList{Items: []string{}}, nil},
		"Exclude":         {&discovery.FilterList{Action: discovery.Exclude, Items: []string{"oven"}}, []discovery.Device{oven, mixer}},
		"Exclude nothing": {&discovery.FilterList{Action: discovery.Exclude, Items: []string{}}, []discovery.Device{oven, other, mixer}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := devicesOf(serversOf(list, tc.names, maxServers), mustTarget(t, "opc.tcp://10.0.0.7:4840/"),
				map[string]bool{"10.0.0.1": true})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolver(t *testing.T) {
	down := false
	var mu sync.Mutex
	lookups := map[string]int{}
	r := &resolver{lookup: func(_ context.Context, host string) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		lookups[host]++
		switch {
		case down:
			return nil, &net.DNSError{Err: "timeout", IsTimeout: true}
		case host == "here":
			return []string{"10.0.0.1"}, nil
		case host == "broken":
			return nil, errors.New("broken")
		}
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}}
	check := func(state string, want map[string]bool, hosts ...string) {
		t.Helper()
		var s server
		for _, host := range hosts {
			s.own = append(s.own, target{host: host})
		}
		if diff := cmp.Diff(want, r.known(t.Context(), []server{s, s})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", state, diff)
		}
	}
	check("at first", map[string]bool{"here": true, "gone": false, "10.0.0.1": true, "::1": true}, "here", "gone", "10.0.0.1", "::1")
	if lookups["here"] != 1 || lookups["10.0.0.1"] != 0 {
		t.Errorf("lookups %v, want one of here and none of an address", lookups)
	}
	down = true
	check("while the name server is down", map[string]bool{"here": true, "gone": false, "new": false, "10.0.0.1": true}, "here", "gone", "new", "10.0.0.1")
	down = false
	check("when it is back", map[string]bool{"here": true, "broken": false}, "here", "broken")
}
