package onvif

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/netif"
)

func TestDetails(t *testing.T) {
	for text, wantErr := range map[string]string{
		"":                                      "",
		"{}":                                    "",
		"discoveryTimeoutSeconds: 2":            "",
		"identity: uuid":                        "",
		"identity: address":                     "",
		"colour: red":                           "", // warned of
		"ipAddresses: {items: []}":              "",
		"ipAddresses: {}":                       "ipAddresses.items, the list of values, is missing",
		"macAddresses: {action: Ex, items: []}": `macAddresses.action is "Ex"`,
		"scopes: []":                            "scopes",
		"uuids: {items: a}":                     "uuids.items",
		"discoveryTimeoutSeconds: 1s":           "discoveryTimeoutSeconds",
		"discoveryTimeoutSeconds: -1":           "discoveryTimeoutSeconds is -1: want 0 to 60",
		"discoveryTimeoutSeconds: 61":           "discoveryTimeoutSeconds is 61",
		"identity: name":                        `identity is "name": want address or uuid`,
		"[":                                     "not YAML",
	} {
		called := false
		err := (&Handler{}).Discover(canceled(t), discovery.Request{Details: text, Warn: func(string) { called = true }}, func(discovery.Result) { t.Error("reported") })
		if wantErr == "" {
			if errors.Is(err, discovery.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), wantErr) || !errors.Is(err, discovery.ErrInvalid) || !strings.Contains(err.Error(), "discoveryDetails of onvif") {
			t.Errorf("%q: error is %v, want an invalid %q", text, err, wantErr)
		}
		if called != (text == "colour: red") {
			t.Errorf("%q: warned: %v", text, called)
		}
	}
}

func serviceAt(xaddr string, ipv4 bool) verified {
	return verified{target: target{xaddr: xaddr}, ipv4: ipv4}
}

func TestCandidates(t *testing.T) {
	now := time.Unix(1000, 0)
	old := now.Add(-time.Minute)
	four, other, secure := serviceAt("http://10.0.0.5/d", true), serviceAt("http://10.1.0.5/d", true), serviceAt("https://10.0.0.5/d", true)
	six, local := serviceAt("http://[fd00::5]/d", false), serviceAt("http://169.254.0.5/d", true)
	for name, tc := range map[string]struct {
		camera     camera
		akri, uuid []verified
		waits      bool
	}{
		"one address":                      {camera: camera{services: []verified{four}, since: now}, akri: []verified{four}, uuid: []verified{four}},
		"two networks, as in Akri":         {camera: camera{services: []verified{four, other, six, secure, local}, since: now}, akri: []verified{four, other}, uuid: []verified{four}},
		"IPv6 alone":                       {camera: camera{services: []verified{six}, since: old}, akri: []verified{six}, uuid: []verified{six}},
		"TLS alone":                        {camera: camera{services: []verified{secure}, since: old}, akri: []verified{secure}, uuid: []verified{secure}},
		"link-local alone":                 {camera: camera{services: []verified{local}, since: old}, akri: []verified{local}, uuid: []verified{local}},
		"IPv6 is heard first":              {camera: camera{services: []verified{six}, since: now}, waits: true},
		"IPv6, and others are being asked": {camera: camera{services: []verified{six}, since: old, asking: true}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			for identity, want := range map[string][]verified{identityAddress: tc.akri, identityUUID: tc.uuid} {
				got, _ := details{Identity: identity}.candidates([]camera{tc.camera}, now)
				if len(got) != 1 || !slices.Equal(got[0].devices, want) || tc.waits != (len(got[0].devices) == 0) {
					t.Errorf("%s: candidates %+v, want %+v", identity, got, want)
				}
			}
		})
	}
	_, next := details{Identity: identityUUID}.candidates([]camera{{services: []verified{six}, since: now}}, now)
	if !next.Equal(now.Add(ipv4Delay)) {
		t.Errorf("next is %s, want %s later", next, ipv4Delay)
	}
}

// All nodes prefer the same address, so that a shared Instance has one URL.
func TestOrderOfServices(t *testing.T) {
	want := []verified{
		serviceAt("http://10.0.0.4/d", true), serviceAt("http://10.0.0.5/d", true), serviceAt("http://[fd00::5]/d", true), serviceAt("https://10.0.0.1/d", true),
		serviceAt("https://[fd00::1]/d", false), serviceAt("http://169.254.0.1/d", true), serviceAt("http://[fe80::1]/d", false), serviceAt("https://169.254.0.1/d", true),
	}
	got := slices.Clone(want)
	for range 10 {
		slices.Reverse(got)
		got[0], got[3] = got[3], got[0]
		slices.SortFunc(got, verified.compare)
		if !slices.Equal(got, want) {
			t.Fatalf("order is %v, want %v", got, want)
		}
	}
}

// What a camera tells is asked for once, and again when it changed, or failed: the
// later the oftener it failed.
func TestQuery(t *testing.T) {
	q := newQuery(details{Identity: identityAddress}, discovery.Request{}, newClient(anyAddress))
	now := time.Unix(1000, 0)
	refused := target{xaddr: "http://" + netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 1).String() + "/d", source: netip.MustParseAddr("127.0.0.1")}
	candidates := []candidate{{camera{uuid: "a", version: "1"}, []verified{{target: refused, ipv4: true}}}}
	fail := func(err error, want time.Duration) {
		t.Helper()
		if pending, _ := q.start(t.Context(), candidates, now); q.running != 1 || pending != (want == 10*time.Second && q.last == nil) {
			t.Fatalf("%d run, pending %v", q.running, pending)
		}
		r := <-q.results
		r.err = err
		q.finish(t.Context(), r, now)
		q.result(candidates)
		if _, next := q.start(t.Context(), candidates, now); q.running != 0 || next.Sub(now) != want {
			t.Fatalf("after %v: again after %s, want %s", err, next.Sub(now), want)
		}
		now = now.Add(want)
	}
	if devices := q.result(candidates).Devices; len(devices) != 0 {
		t.Errorf("reported %v of a camera that was not asked", devices)
	}
	q.last = nil
	broken := errors.New("broken")
	fail(broken, 10*time.Second)
	fail(broken, 20*time.Second)
	fail(errNotAuthorized, time.Minute)
	fail(errNotAuthorized, 2*time.Minute)
	for range 4 {
		fail(fmt.Errorf("x: %w", errNotAuthorized), min(q.facts[factKey{"a", refused.xaddr}].backoff*2, maxLoginInterval))
	}
	fail(errNotAuthorized, maxLoginInterval)
	fail(broken, maxQueryInterval)

	q.start(t.Context(), candidates, now)
	r := <-q.results
	r.err, r.network = nil, network{ip: "10.0.0.5"}
	q.finish(t.Context(), r, now)
	if _, next := q.start(t.Context(), candidates, now.Add(24*time.Hour)); q.running != 0 || !next.IsZero() {
		t.Errorf("asked again, though nothing changed")
	}
	// Another version is asked for, but not at once; the old answer stands.
	before := q.result(candidates)
	candidates[0].version = "2"
	if _, next := q.start(t.Context(), candidates, now.Add(time.Second)); q.running != 0 || next.IsZero() {
		t.Errorf("%d run, next %s", q.running, next)
	}
	q.start(t.Context(), candidates, now.Add(minQueryInterval))
	if q.running != 1 || !reflect.DeepEqual(q.result(candidates), before) {
		t.Errorf("%d run, result %v", q.running, q.result(candidates))
	}
	q.finish(t.Context(), <-q.results, now)
	if diff := cmp.Diff(before, q.result(candidates)); diff != "" {
		t.Errorf("a failure takes away what was known (-before +after):\n%s", diff)
	}
	// The camera has another address now: until that is known, it is what it was.
	candidates[0].devices = []verified{{target: target{xaddr: "http://10.0.0.9/d"}, ipv4: true}}
	if pending, _ := q.start(t.Context(), candidates, now); !pending || !reflect.DeepEqual(q.result(candidates), before) {
		t.Errorf("result %v, want %v until more is known", q.result(candidates), before)
	}
	<-q.results
}

// That a camera did not answer once does not keep it from the user that it refuses the login.
func TestEachKindOfFailureIsAWarning(t *testing.T) {
	var warnings []string
	request := discovery.Request{Properties: propertiesOf("username_default", "u", "password_default", "p"),
		Warn: func(message string) { warnings = append(warnings, message) }}
	q := newQuery(details{}, request, newClient(anyAddress))
	for _, err := range []error{errors.New("broken"), errNotAuthorized, errors.New("broken"), errNotAuthorized} {
		q.finish(t.Context(), queryResult{&fact{}, "a", "http://10.0.0.5/d", network{}, err}, time.Now())
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "broken") ||
		!strings.Contains(warnings[1], "refused the login") {
		t.Errorf("warned of %q, want both failures, once", warnings)
	}
}

func TestQueriesAreBounded(t *testing.T) {
	q := newQuery(details{}, discovery.Request{}, newClient(anyAddress))
	var candidates []candidate
	for i := range 50 {
		candidates = append(candidates, candidate{camera{uuid: fmt.Sprint(i)}, []verified{{target: target{xaddr: "http://127.0.0.1:1/"}}}})
	}
	for answered := 0; answered < 50; answered++ {
		pending, _ := q.start(t.Context(), candidates, time.Now())
		if q.running > maxQueries || !pending {
			t.Fatalf("%d run, pending %v", q.running, pending)
		}
		q.finish(t.Context(), <-q.results, time.Now())
	}
	if pending, _ := q.start(t.Context(), candidates, time.Now()); pending || q.running != 0 {
		t.Errorf("%d run, pending %v after all were answered", q.running, pending)
	}
}

// Cameras that never answer are asked again and again, and keep no other waiting.
func TestANewCameraIsAskedBeforeThoseThatFail(t *testing.T) {
	q := newQuery(details{}, discovery.Request{}, newClient(anyAddress))
	now := time.Unix(1000, 0)
	at := func(uuid string) candidate {
		return candidate{camera{uuid: uuid}, []verified{{target: target{xaddr: "http://127.0.0.1:1/"}}}}
	}
	var candidates []candidate
	for i := range 3 * maxQueries {
		candidates = append(candidates, at(fmt.Sprintf("a%02d", i)))
	}
	for range candidates {
		q.start(t.Context(), candidates, now)
		q.finish(t.Context(), <-q.results, now)
	}
	candidates = append(candidates, at("new"))
	q.start(t.Context(), candidates, now.Add(time.Hour))
	if !q.facts[factKey{"new", "http://127.0.0.1:1/"}].asking {
		t.Errorf("%d others are asked, and not the new one", q.running)
	}
	for ; q.running > 0; q.running-- {
		<-q.results
	}
}

func TestEndpoints(t *testing.T) {
	of := func(index int, name string, prefixes ...string) netif.Interface {
		i := netif.Interface{Index: index, Name: name}
		for _, p := range prefixes {
			i.Prefixes = append(i.Prefixes, netip.MustParsePrefix(p))
		}
		return i
	}
	got := endpoints([]netif.Interface{
		of(2, "eth0", "10.7.3.9/24", "10.7.3.1/24", "192.168.1.9/24", "10.0.0.1/32", "fd77::1/64", "fe80::2/64",
			"fe80::1/64"),
		of(3, "eth1", "fd78::1/64"), // no address to send multicast of link scope from
		of(4, "eth2", "169.254.1.1/16"),
		of(5, "eth3", "10.8.0.1/32"), // as some clouds give
	})
	want := []endpointAddress{
		{2, "eth0", netip.MustParseAddr("10.7.3.9")},
		{2, "eth0", netip.MustParseAddr("192.168.1.9")}, // many cameras' own
		{2, "eth0", netip.MustParseAddr("fe80::2")},
		{4, "eth2", netip.MustParseAddr("169.254.1.1")}, {5, "eth3", netip.MustParseAddr("10.8.0.1")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("endpoints = %v, want %v", got, want)
	}
	if got := len(endpoints(slices.Repeat([]netif.Interface{of(2, "eth0", "10.7.3.9/24", "fe80::2/64")}, 100))); got != maxLinks {
		t.Errorf("%d links on 100 interfaces, want %d", got, maxLinks)
	}
}

// The forms in which cameras, their labels and switches write MAC addresses are one.
func TestMACAddressesInAnyForm(t *testing.T) {
	forms := []string{"c0:06:c3:12:34:5f", "C0-06-C3-12-34-5F", "c006c312345f", "C006.C312.345F", "c0 06 c3 12 34 5f"}
	for _, action := range []string{discovery.Include, discovery.Exclude} {
		for _, item := range forms {
			d, err := parseDetails(discovery.Request{Details: fmt.Sprintf("macAddresses: {action: %s, items: [%q]}",
				action, item)})
			if err != nil {
				t.Fatal(err)
			}
			for _, mac := range forms {
				device, kept := d.device(camera{}, verified{}, network{mac: mac})
				if kept != (action == discovery.Include) {
					t.Errorf("%s %s: a camera with %s is kept: %v", action, item, mac, kept)
				}
				if kept && device.Properties[MACAddressProperty] != mac {
					t.Errorf("%s is %s in the environment", mac, device.Properties[MACAddressProperty])
				}
			}
			_, kept := d.device(camera{}, verified{}, network{mac: "c0:06:c3:12:34:5e"})
			if kept == (action == discovery.Include) {
				t.Errorf("%s %s: another camera is kept: %v", action, item, kept)
			}
		}
	}
}
