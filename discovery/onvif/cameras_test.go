package onvif

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/onvifcamera"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

// Cameras on a real network. Times are bounds, not expectations: a round of probes is
// testInterval here.

func propertiesOf(pairs ...string) map[string][]byte {
	p := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = []byte(pairs[i+1])
	}
	return p
}

// propertiesFor are the properties with the camera's UUID in the places of uuid and UUID.
func propertiesFor(properties map[string][]byte, uuid string) map[string][]byte {
	own := map[string][]byte{}
	for key, value := range properties {
		key = strings.ReplaceAll(key, "_uuid", "_"+strings.ReplaceAll(uuid, "-", "_"))
		own[key] = []byte(strings.NewReplacer(`"uuid"`, `"`+uuid+`"`, `"UUID"`, `"`+strings.ToUpper(uuid)+`"`).Replace(string(value)))
	}
	return own
}

// A camera that was there before is found by its answer, and logged in to.
func TestLogins(t *testing.T) {
	l := lan.New(t)
	const user, password = "ad<min", `s&"cret`
	byUUID := fmt.Sprintf(`{"UUID": {"username": %q, "password": %q}}`, user, password)
	encoded := fmt.Sprintf(`{"uuid": {"username": %q, "password": %q, "base64encoded": true}}`, user, base64.StdEncoding.EncodeToString([]byte(password)))
	const byRef = `{"uuid": {"username_ref": "u", "password_ref": "p"}}`
	list := propertiesOf(credentialList, `["one"]`, "one", byUUID)
	login := func(auth onvifcamera.Auth) onvifcamera.Config {
		return onvifcamera.Config{User: user, Password: password, Auth: auth, RefuseReplays: true}
	}
	late := login(onvifcamera.AuthWSS)
	late.ClockOffset = -26 * time.Hour
	ahead := login(onvifcamera.AuthWSS)
	ahead.ClockOffset = 3 * time.Hour
	md5 := login(onvifcamera.AuthDigest)
	md5.DigestAlgorithm = "MD5"
	sha := login(onvifcamera.AuthDigest)
	sha.DigestAlgorithm = "SHA-256"
	cases := map[string]struct {
		camera     onvifcamera.Config
		properties map[string][]byte // in which uuid and UUID stand for the camera's
		unknown    bool              // the addresses are
		warning    string            // a part of it
	}{
		"no login needed":            {},
		"credential list":            {camera: login(onvifcamera.AuthWSS), properties: list},
		"credential list, base64":    {camera: login(onvifcamera.AuthWSS), properties: propertiesOf(credentialList, `["one"]`, "one", encoded)},
		"credential ref list":        {camera: login(onvifcamera.AuthWSS), properties: propertiesOf(credentialRefList, `["r"]`, "r", byRef, "u", user, "p", password)},
		"username_<uuid>":            {camera: login(onvifcamera.AuthWSS), properties: propertiesOf("username_uuid", user, "password_uuid", password)},
		"username_default":           {camera: login(onvifcamera.AuthWSS), properties: propertiesOf("username_default", user, "password_default", password)},
		"the UUID's before default":  {camera: login(onvifcamera.AuthWSS), properties: propertiesOf("username_default", "x", "password_default", "y", "username_uuid", user, "password_uuid", password)},
		"a clock far behind":         {camera: late, properties: list},
		"a clock ahead":              {camera: ahead, properties: list},
		"HTTP digest with MD5":       {camera: md5, properties: list},
		"HTTP digest with SHA-256":   {camera: sha, properties: list},
		"both kinds of login":        {camera: login(onvifcamera.AuthBoth), properties: list},
		"no login known":             {camera: login(onvifcamera.AuthBoth), unknown: true},
		"a wrong login":              {camera: login(onvifcamera.AuthWSS), properties: propertiesOf("username_default", user, "password_default", "guess"), unknown: true, warning: "refused the login"},
		"a wrong login, HTTP digest": {camera: sha, properties: propertiesOf("username_default", user, "password_default", "guess"), unknown: true, warning: "refused the login"},
		"a list that is no JSON":     {camera: login(onvifcamera.AuthWSS), properties: propertiesOf(credentialList, `[one]`), unknown: true, warning: "device_credential_list is no JSON list"},
	}
	// All wait together for one scan, each for its own camera. On a busy machine requests take
	// longer than a camera may: the next round asks again. So cameras tell one URL, whatever
	// they are heard by first, and what counts is not the first report but the last.
	h, uuids := &Handler{Interval: testInterval}, map[string]string{}
	cameras, urls, reported := map[string]*onvifcamera.Camera{}, map[string]string{}, map[string]*reports{}
	for name, tc := range cases {
		host := l.Host()
		uuids[name] = fmt.Sprintf("3fa1fe68-b915-4053-a3e1-%012d", len(uuids))
		urls[name] = fmt.Sprintf("http://%s/onvif/device_service", host.IPv4)
		tc.camera.MAC, tc.camera.IP = "02:00:00:aa:bb:cc", host.IPv4.String()
		tc.camera.UUID, tc.camera.XAddrs = uuids[name], []string{urls[name]}
		cameras[name], _ = startCameraOn(t, host, tc.camera)
	}
	began := time.Now()
	for name, tc := range cases {
		details := "discoveryTimeoutSeconds: 4\nuuids: {items: [" + uuids[name] + "]}"
		reported[name] = discover(t, h, discovery.Request{Properties: propertiesFor(tc.properties, uuids[name]), Details: details})
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := []discovery.Device{{ID: urls[name] + "-" + uuids[name], Properties: map[string]string{
				"ONVIF_DEVICE_SERVICE_URL": urls[name], "ONVIF_DEVICE_UUID": uuids[name],
			}}}
			if !tc.unknown {
				want[0].Properties["ONVIF_DEVICE_IP_ADDRESS"] = strings.Split(urls[name], "/")[2]
				want[0].Properties["ONVIF_DEVICE_MAC_ADDRESS"] = "02:00:00:aa:bb:cc"
			}
			for !reflect.DeepEqual(reported[name].next(time.Minute, fmt.Sprint(want)), want) {
			}
			for warned := tc.warning == ""; !warned || len(reported[name].warnings) > 0; {
				select {
				case warning := <-reported[name].warnings:
					expected := tc.warning != "" && strings.Contains(warning, tc.warning)
					warned = warned || expected
					if !expected && !strings.Contains(warning, "deadline exceeded") ||
						strings.Contains(warning, password) {
						t.Errorf("warned of %q, want %q", warning, tc.warning)
					}
				case <-time.After(time.Minute):
					t.Fatalf("no warning within a minute, want %q", tc.warning)
				}
			}
			// Cameras lock out who fails too often: a token and a digest are refused, each time.
			times := 1 + int(time.Since(began)/minQueryInterval)
			if n := cameras[name].Count("unauthorized"); n > 2*times {
				t.Errorf("the camera refused %d requests, of %d times that it was asked for its addresses at most",
					n, times)
			}
		})
	}
}

// Hello and Bye are heard: nobody waits for a round of probes.
func TestHelloAndBye(t *testing.T) {
	l := lan.New(t)
	r := discover(t, &Handler{Interval: time.Hour}, discovery.Request{})
	r.want(time.Minute, "nothing")
	for _, config := range []onvifcamera.Config{{}, {NoXAddrsInMatches: true}} {
		camera, host := startCamera(t, l, config)
		r.want(time.Minute, "Hello", akriID(host, uuidA))
		camera.Stop()
		r.want(time.Minute, "Bye")
	}
}

// Probes are repeated, and a camera that nobody heard from is there while it answers
// when it is asked directly.
func TestSilence(t *testing.T) {
	if testing.Short() {
		t.Skip("ten rounds of probes; testdata/sightings has their rules: make test-all")
	}
	// The kernel may take a second to notice that a cable is back.
	const interval = 2 * time.Second
	l := lan.New(t)
	camera, host := startCamera(t, l, onvifcamera.Config{})
	witness, _ := startCamera(t, l, onvifcamera.Config{UUID: uuidB}) // counts rounds
	r := discover(t, &Handler{Interval: interval}, discovery.Request{Details: "uuids: {items: [" + uuidA + "]}"})
	r.want(time.Minute, "a camera that was there", akriID(host, uuidA))

	await.That(t, "4 probes on each of 2 IP versions in each of 2 rounds", func() bool {
		return camera.Count("Probe") >= 16
	})
	asked := camera.Count("GetSystemDateAndTime")
	camera.SetDeaf(true)
	await.That(t, "direct questions to a deaf camera", func() bool {
		return camera.Count("GetSystemDateAndTime") >= asked+3
	})
	r.wantNone("the camera is deaf, but there")

	// A cable that is pulled for less than three rounds.
	camera.SetDeaf(false)
	probes := camera.Count("Probe")
	await.That(t, "probes", func() bool { return camera.Count("Probe") > probes })
	host.SetConnected(false)
	probes = witness.Count("Probe")
	await.That(t, "a round without the camera", func() bool { return witness.Count("Probe") >= probes+8 })
	host.SetConnected(true)
	r.wantNone("only a round was without the camera")
	probes = camera.Count("Probe")
	await.That(t, "two rounds with the camera", func() bool { return camera.Count("Probe") >= probes+16 })

	camera.Kill()
	began := time.Now()
	r.want(6*interval+2*requestTimeout, "the loss of power")
	if took := time.Since(began); took < 2*interval {
		t.Errorf("gone after %s, before three rounds were silent", took)
	}
}

// Anybody can send a Bye. It counts when the camera does not answer.
func TestForgedBye(t *testing.T) {
	l := lan.New(t)
	camera, host := startCamera(t, l, onvifcamera.Config{})
	r := discover(t, &Handler{Interval: time.Hour}, discovery.Request{})
	r.want(time.Minute, "the camera", akriID(host, uuidA))
	asked := camera.Count("GetSystemDateAndTime")
	camera.Bye()
	await.That(t, "questions whether the Bye is true", func() bool {
		return camera.Count("GetSystemDateAndTime") >= asked+3
	})
	r.wantNone("a Bye of a camera that is there")
	camera.StopHTTP()
	camera.Bye()
	r.want(time.Minute, "a Bye of a camera that does not answer")
}

func TestFilters(t *testing.T) {
	l := lan.New(t)
	a, b := l.Host(), l.Host()
	startCameraOn(t, a, onvifcamera.Config{UUID: strings.ToUpper(uuidA), MAC: "02:00:00:AA:BB:CC", Scopes: []string{"onvif://www.onvif.org/location/hall"}})
	startCameraOn(t, b, onvifcamera.Config{UUID: uuidB, MAC: "02:00:00:00:00:01", User: "u", Password: "p"})
	idA, idB := akriID(a, uuidA), akriID(b, uuidB)
	// All wait together, of one scan.
	h, checks := &Handler{Interval: time.Minute}, map[string]func(*testing.T){}
	for details, want := range map[string][]string{
		"{}": {idA, idB},
		"scopes: {items: ['onvif://www.onvif.org/location/hall']}":                  {idA},
		"scopes: {items: ['onvif://www.onvif.org/location/HALL']}":                  nil,
		"scopes: {action: Exclude, items: ['onvif://www.onvif.org/location/hall']}": {idB},
		"uuids: {action: Include, items: ['" + strings.ToUpper(uuidB) + "']}":       {idB},
		"uuids: {action: Exclude, items: ['" + uuidB + "']}":                        {idA},
		"uuids: {action: Include, items: []}":                                       nil,
		"uuids: {action: Exclude, items: []}":                                       {idA, idB},
		"macAddresses: {items: ['02:00:00:aa:bb:cc', '02:00:00:00:00:01']}":         {idA}, // the other one's are not known
		"macAddresses: {action: Exclude, items: ['02:00:00:aa:bb:dd']}":             {idA},
		"macAddresses: {action: Exclude, items: []}":                                {idA, idB},
		"ipAddresses: {items: ['" + a.IPv4.String() + "']}":                         {idA},
		"ipAddresses: {action: Exclude, items: ['" + a.IPv4.String() + "']}":        nil,
		"identity: uuid": {uuidA, uuidB},
	} {
		r := discover(t, h, discovery.Request{Details: details})
		checks[details] = func(t *testing.T) {
			devices := r.next(time.Minute, "the first round")
			for len(devices) < len(want) { // where the machine is busy
				devices = r.next(time.Minute, "a later round")
			}
			if diff := cmp.Diff(want, ids(devices)); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
			for _, d := range devices {
				if _, ok := d.Properties[IPAddressProperty]; ok != (d.Properties[UUIDProperty] == uuidA) {
					t.Errorf("%s is known of %s: %v", IPAddressProperty, d.ID, ok)
				}
			}
		}
	}
	for details, check := range checks {
		t.Run(details, check)
	}
}

// A new address is another device with Akri's identity, and the same one, with another
// URL, with identity uuid.
func TestAddressChanges(t *testing.T) {
	l := lan.New(t)
	camera, host := startCamera(t, l, onvifcamera.Config{})
	h := &Handler{Interval: testInterval}
	akri := discover(t, h, discovery.Request{})
	better := discover(t, h, discovery.Request{Details: "identity: uuid"})
	akri.want(time.Minute, "the camera", akriID(host, uuidA))
	better.want(time.Minute, "the camera", uuidA)

	url := fmt.Sprintf("http://[%s]/onvif/device_service", host.IPv6)
	camera.SetXAddrs(url)
	camera.Hello()
	akri.want(time.Minute, "the new address", url+"-"+uuidA)
	if devices := better.want(time.Minute, "the new address", uuidA); devices[0].Properties[ServiceURLProperty] != url {
		t.Errorf("reported %v, want %s", devices, url)
	}
}

// Cheap cameras share their maker's UUID.
func TestSameUUIDTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("ten rounds of probes; testdata/sightings has their rules: make test-all")
	}
	l := lan.New(t)
	first, a := startCamera(t, l, onvifcamera.Config{})
	_, b := startCamera(t, l, onvifcamera.Config{})
	r := discover(t, &Handler{Interval: testInterval}, discovery.Request{})
	r.want(time.Minute, "both cameras", akriID(a, uuidA), akriID(b, uuidA))
	await.That(t, "four rounds", func() bool { return first.Count("Probe") >= 32 })
	r.wantNone("both are there")
	first.Kill()
	r.want(6*testInterval+2*requestTimeout, "the end of one", akriID(b, uuidA))
}

// All Configurations share one scan.
func TestConfigurationsShareProbes(t *testing.T) {
	l := lan.New(t)
	camera, host := startCamera(t, l, onvifcamera.Config{})
	h := &Handler{Interval: time.Hour}
	var all []*reports
	for range 10 {
		all = append(all, discover(t, h, discovery.Request{}))
	}
	for _, r := range all {
		r.want(time.Minute, "the camera", akriID(host, uuidA))
	}
	if n := camera.Count("Probe"); n > 8 {
		t.Errorf("the camera heard %d probes, want those of one scan: 8", n)
	}
	// However old the scan is, the first report is of everything.
	h.mu.Lock()
	h.scan.started = h.scan.started.Add(-time.Hour)
	h.mu.Unlock()
	late := discover(t, h, discovery.Request{})
	late.want(time.Minute, "a camera that is known", akriID(host, uuidA))
	for _, r := range all {
		r.stop()
	}
	late.wantNone("others ended")
	camera.Stop()
	late.want(time.Minute, "Bye")
	late.stop()
	if h.scan != nil || h.users != 0 {
		t.Errorf("the scan runs on: %d users", h.users)
	}
}

func TestNewInterface(t *testing.T) {
	first, second := lan.New(t), lan.NewOn(t, "eth1")
	_, host := startCamera(t, first, onvifcamera.Config{})
	r := discover(t, &Handler{Interval: time.Hour}, discovery.Request{})
	r.want(time.Minute, "the camera", akriID(host, uuidA))
	_, other := startCamera(t, second, onvifcamera.Config{UUID: uuidB})
	r.want(time.Minute, "a camera on the second interface", akriID(host, uuidA), akriID(other, uuidB))
	third := lan.NewOn(t, "eth2")
	third.Unplug() // before the camera comes: one that cannot be asked has to wait for the next round
	_, last := startCamera(t, third, onvifcamera.Config{UUID: "c"})
	third.PlugIn()
	r.want(time.Minute, "a camera on an interface that came later",
		akriID(host, uuidA), akriID(other, uuidB), akriID(last, "c"))
}

// Akri finds no camera over IPv6. An address of link scope is asked by the right interface.
func TestIPv6Alone(t *testing.T) {
	l := lan.New(t)
	r := discover(t, &Handler{Interval: time.Hour}, discovery.Request{})
	r.want(time.Minute, "nothing")
	want := []string{}
	for i, remove := range []func(net.IP) bool{
		func(ip net.IP) bool { return ip.To4() != nil },
		func(ip net.IP) bool { return !ip.IsLinkLocalUnicast() },
	} {
		host := l.Host()
		local := ""
		err := host.Do(func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
			for _, a := range addresses {
				if a.IP.IsLinkLocalUnicast() {
					local = a.IP.String()
				}
				if remove(a.IP) {
					err = errors.Join(err, netlink.AddrDel(link, &a))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		address := host.IPv6.String()
		if i == 1 {
			address = local
		}
		id := fmt.Sprintf("camera-%d", i)
		startCameraOn(t, host, onvifcamera.Config{UUID: id})
		want = append(want, fmt.Sprintf("http://[%s]/onvif/device_service-%s", address, id))
		r.want(time.Minute, "Hello over IPv6 alone", want...)
	}
}
