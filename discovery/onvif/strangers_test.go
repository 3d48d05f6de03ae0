package onvif

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/need"
	"github.com/kubeslot/kubeslot/test/onvifcamera"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

// probeFor asks everybody on the network for devices of a type, from a host, and
// returns the answer of the one with the UUID.
func probeFor(t *testing.T, from *lan.Host, declaration, name, uuid string) []byte {
	t.Helper()
	var conn net.PacketConn
	err := from.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", from.IPv4.String()+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buffer := make([]byte, 65536)
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		probe := discoveryMessage("Probe", `<d:Probe><d:Types `+declaration+`>`+name+`</d:Types></d:Probe>`)
		if _, err := conn.WriteTo(probe, &net.UDPAddr{IP: groupIPv4.AsSlice(), Port: discoveryPort}); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				break
			}
			if strings.Contains(string(buffer[:n]), uuid) {
				return buffer[:n]
			}
		}
	}
	t.Fatalf("%s does not answer to a probe for %s for two minutes", uuid, name)
	return nil
}

// Debian's wsdd makes a host appear as a computer in Windows. It speaks WS-Discovery
// and is no camera. It may run on a node, too.
func TestWSDD(t *testing.T) {
	if testing.Short() {
		t.Skip("two programs that take seconds to start: make test-all")
	}
	program := need.Program(t, "apt-get install wsdd", "wsdd")
	l := lan.New(t)
	computer, client := l.Host(), l.Host()
	computer.Start(exec.Command(program, "--interface", "eth0", "--hostname", "computer", "--uuid", uuidB, "--ipv4only"))
	message := probeFor(t, client, dpws, "wsdp:Device", uuidB)
	if present, leaving, err := parseMessage(message); len(present)+len(leaving) != 0 || err != nil {
		t.Errorf("%s is taken for %v, %v, %v", message, present, leaving, err)
	}

	h := &Handler{Interval: testInterval}
	r := discover(t, h, discovery.Request{})
	r.want(time.Minute, "a computer")
	node := exec.Command(program, "--interface", "eth0", "--hostname", "node", "--uuid", uuidA, "--ipv4only")
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	})
	probeFor(t, client, dpws, "wsdp:Device", uuidA) // the node's own can be found as before
	camera, host := startCamera(t, l, onvifcamera.Config{})
	r.want(time.Minute, "a camera", akriID(host, uuidA))
	await.That(t, "two rounds", func() bool { return camera.Count("Probe") >= 16 })
	r.wantNone("computers are no cameras")
}

// A host that answers everything with all that a parser and a client may stumble on,
// and floods the network with cameras that are none.
func TestHostileHost(t *testing.T) {
	l := lan.New(t)
	camera, good := startCamera(t, l, onvifcamera.Config{})
	evil := l.Host()
	url := startHostileServer(t, evil)
	own := func(id int, xaddr string) string {
		return soap(onvifTypes, match(fmt.Sprintf("urn:uuid:evil-%d", id), "dn:NetworkVideoTransmitter", "", xaddr))
	}
	var messages []string
	for i := range 300 {
		messages = append(messages, own(i, fmt.Sprintf("%s/%d", url, i)))
	}
	messages = append(messages,
		own(1, "http://127.0.0.1:1/ http://169.254.169.254/latest http://10.255.255.1/"),
		own(2, strings.Repeat("http://x/ ", 1000)), strings.Repeat("<a>", 10_000), "<!DOCTYPE a>"+own(3, url), strings.Repeat("\x00", 60_000), "",
		soap(onvifTypes, match(strings.Repeat("x", 10_000), "dn:NetworkVideoTransmitter", "", url)),
		// The good camera says Bye, and that it is elsewhere.
		soap("", `<d:Bye><wsa:EndpointReference><wsa:Address>urn:uuid:`+uuidA+`</wsa:Address></wsa:EndpointReference></d:Bye>`),
		soap(onvifTypes, match("urn:uuid:"+uuidA, "dn:NetworkVideoTransmitter", "", url)),
	)
	flood(t, evil, messages)

	h := &Handler{Interval: testInterval}
	r := discover(t, h, discovery.Request{})
	r.want(time.Minute, "a camera among made-up ones", akriID(good, uuidA))
	await.That(t, "four rounds", func() bool { return camera.Count("Probe") >= 32 })
	r.wantNone("only one of them is a camera")
	known := func() (cameras, asking int) {
		h.scan.mu.Lock()
		defer h.scan.mu.Unlock()
		return len(h.scan.sightings.cameras), h.scan.asking
	}
	// Not all of the flood arrives; what does is known, or the test would show nothing.
	await.That(t, "a third of 301 cameras to be known", func() bool { n, _ := known(); return n >= 100 })
	if n, asking := known(); n > 310 || asking > maxAsked {
		t.Errorf("%d cameras are known, want 301 at most; %d are being asked, of %d at most", n, asking, maxAsked)
	}
}

// startHostileServer serves nonsense, without end, or nothing.
func startHostileServer(t *testing.T, host *lan.Host) (url string) {
	t.Helper()
	var listener net.Listener
	err := host.Do(func() (err error) {
		listener, err = net.Listen("tcp", host.IPv4.String()+":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path[len(r.URL.Path)-1] {
		case '0':
			<-r.Context().Done()
		case '1', '2', '3':
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat("<a>", 10_000))); err != nil {
					return
				}
			}
		case '4':
			http.Redirect(w, r, "http://127.0.0.1:10349/", http.StatusTemporaryRedirect)
		default:
			fmt.Fprint(w, "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>")
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + host.IPv4.String()
}

// flood multicasts messages over and over until the test ends, as one network camera
// per message would.
func flood(t *testing.T, host *lan.Host, messages []string) {
	t.Helper()
	var conn net.PacketConn
	err := host.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", host.IPv4.String()+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ended, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
				_, _ = conn.WriteTo([]byte(messages[i%len(messages)]), &net.UDPAddr{IP: groupIPv4.AsSlice(), Port: discoveryPort})
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ended
		_ = conn.Close()
	})
}
