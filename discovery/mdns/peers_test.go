package mdns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/need"
	"github.com/kubeslot/kubeslot/test/npm"
)

// Responders that others wrote.

const avahiServices = `<?xml version="1.0" standalone='no'?>
<!DOCTYPE service-group SYSTEM "avahi-service.dtd">
<service-group>
  <name>Café Drucker 2. Stock</name>
  <service>
    <type>_ipp._tcp</type>
    <subtype>_color._sub._ipp._tcp</subtype>
    <port>631</port>
    <txt-record>rp=%s</txt-record>
    <txt-record>Color=T</txt-record>
    <txt-record>note=2. Stock, links</txt-record>
    <txt-record>UUID-x=a</txt-record>
  </service>
</service-group>
`

func TestAvahi(t *testing.T) {
	daemon := need.Program(t, "apt-get install avahi-daemon", "avahi-daemon")
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24", "fd07::1/64"}, []string{"10.7.0.2/24", "fd07::2/64"})
	config := filepath.Join(t.TempDir(), "avahi.conf")
	if err := os.WriteFile(config, []byte("[server]\nhost-name=drucker\nuse-ipv4=yes\nuse-ipv6=yes\nenable-dbus=no\nratelimit-burst=1000\n[publish]\npublish-workstation=no\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// In a mount namespace of its own, since avahi's paths cannot be set.
	mounts := exec.Command("nsenter", "--target", fmt.Sprint(peer.pid), "--mount", "--", "sh", "-c",
		"mount --make-rprivate / && mount -t tmpfs none /etc/avahi/services && mkdir -p /run/avahi-daemon && mount -t tmpfs none /run/avahi-daemon")
	if output, err := mounts.CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, output)
	}
	// The network namespace is entered with the mount namespace: files are written there.
	services := fmt.Sprintf("/proc/%d/root/etc/avahi/services/printer.service", peer.pid)
	write := func(rp string) {
		t.Helper()
		if err := os.WriteFile(services, fmt.Appendf(nil, avahiServices, rp), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := &Handler{}
	d := discover(t, h, "services: [_ipp._tcp]")
	subtype := discover(t, h, "services: [_color._sub._ipp._tcp]")
	other := discover(t, h, "services: [_ipp._tcp]\ntxt: {color: {items: [F]}}")
	d.waitForIDs()
	subtype.waitForIDs()
	other.waitForIDs()

	write("printers/one")
	avahi, lines := peer.start(nil, daemon, "--file", config, "--no-drop-root", "--no-chroot", "--no-rlimits", "--debug")
	say(t, lines, "successfully established")
	const id = "Café Drucker 2. Stock._ipp._tcp"
	d.waitForIDs(id)
	want := map[string]string{
		"MDNS_NAME": "Café Drucker 2. Stock", "MDNS_TYPE": "_ipp._tcp", "MDNS_HOST": "drucker.local", "MDNS_PORT": "631",
		"MDNS_ADDRESS": "10.7.0.2", "MDNS_ADDRESSES": "10.7.0.2,fd07::2",
		"MDNS_TXT_RP": "printers/one", "MDNS_TXT_COLOR": "T", "MDNS_TXT_NOTE": "2. Stock, links", "MDNS_TXT_UUID_X": "a",
	}
	// avahi may announce its families one by one.
	d.reports <- d.last
	d.waitFor("both addresses", func(devices map[string]discovery.Device) bool {
		return devices[id].Properties[AddressesProperty] == want["MDNS_ADDRESSES"]
	})
	if diff := cmp.Diff(want, d.last.Devices[0].Properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	subtype.waitForIDs(id)

	// A Configuration that comes later gets its answers from the cache, or asks.
	discover(t, &Handler{}, "services: [_ipp._tcp]").waitForIDs(id)

	// The file changes: avahi takes the service back and announces it anew.
	write("printers/two")
	d.waitFor("the new TXT record", func(devices map[string]discovery.Device) bool {
		return devices[id].Properties["MDNS_TXT_RP"] == "printers/two"
	})

	// A service that is taken away, while the responder stays.
	if err := os.Remove(services); err != nil {
		t.Fatal(err)
	}
	d.waitForIDs()
	subtype.waitForIDs()
	write("printers/three")
	d.waitForIDs(id)

	// A responder that ends says goodbye.
	if err := avahi.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.waitForIDs()
	select {
	case r := <-other.reports:
		t.Errorf("the filter let through %+v", r)
	default:
	}
}

// bonjour publishes and withdraws services as the lines of its input say.
const bonjour = `
const { Bonjour } = require('bonjour-service')
const b = new Bonjour({ interface: process.argv[2] }, e => console.log('error ' + e))
let service
require('readline').createInterface({ input: process.stdin }).on('line', line => {
  const [command, arg] = line.split(' ')
  if (command === 'publish') {
    service = b.publish({ name: 'Node Lamp', type: 'http', host: 'node-lamp.local', port: 3000, txt: { model: arg, path: '/' }, probe: true })
    service.on('up', () => console.log('up'))
  } else if (command === 'unpublish') {
    service.stop(() => console.log('down'))
  }
})
console.log('ready')
`

func TestBonjourService(t *testing.T) {
	modules := npm.Install(t, "bonjour-service@1.4.4")
	if !inNewNamespace(t) {
		return
	}
	node := need.Program(t, "apt-get install nodejs", "node")
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	d := discover(t, &Handler{}, "services: [_http._tcp]\nname: {items: [node lamp]}")
	d.waitForIDs()

	script := filepath.Join(t.TempDir(), "bonjour.js")
	if err := os.WriteFile(script, []byte(bonjour), 0o644); err != nil {
		t.Fatal(err)
	}
	input := filepath.Join(t.TempDir(), "input")
	if err := syscall.Mkfifo(input, 0o600); err != nil {
		t.Fatal(err)
	}
	commands, err := os.OpenFile(input, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer commands.Close()
	command := func(line string) {
		t.Helper()
		if _, err := fmt.Fprintln(commands, line); err != nil {
			t.Fatal(err)
		}
	}
	_, lines := peer.start([]string{"NODE_PATH=" + modules}, "sh", "-c", strings.Join([]string{"exec", node, script, "10.7.0.2", "<", input}, " "))
	say(t, lines, "ready")
	const id = "Node Lamp._http._tcp"
	fastest := time.Hour
	for try := 0; try < 2 || fastest > goneWithin && try < 10; try++ {
		model := fmt.Sprint("number-", try)
		command("publish " + model)
		say(t, lines, "up")
		d.waitForIDs(id)
		want := map[string]string{
			"MDNS_NAME": "Node Lamp", "MDNS_TYPE": "_http._tcp", "MDNS_HOST": "node-lamp.local", "MDNS_PORT": "3000",
			"MDNS_TXT_MODEL": model, "MDNS_TXT_PATH": "/",
		}
		got := d.last.Devices[0].Properties
		if !strings.HasPrefix(got[AddressProperty], "10.7.0.2") {
			t.Errorf("address %q, want 10.7.0.2", got[AddressProperty])
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s is %q, want %q", key, got[key], value)
			}
		}
		command("unpublish")
		say(t, lines, "down")
		start := time.Now()
		fastest = min(fastest, d.waitForIDs().Sub(start))
	}
	if fastest > goneWithin {
		t.Errorf("the device was gone %v after the service was withdrawn, want at most %v", fastest, goneWithin)
	}
}
