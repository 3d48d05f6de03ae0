package opcua

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	gopcua "github.com/gopcua/opcua/server"
	"github.com/gopcua/opcua/ua"

	"github.com/kubeslot/kubeslot/test/need"
	"github.com/kubeslot/kubeslot/test/npm"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

func TestGopcuaServer(t *testing.T) {
	port := need.Port(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := gopcua.New(gopcua.EndPoint("127.0.0.1", port), gopcua.ServerName("Lathe"),
		gopcua.EnableSecurity("None", ua.MessageSecurityModeNone), gopcua.EnableAuthMode(ua.UserTokenTypeAnonymous))
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("opc.tcp://127.0.0.1:%d", port)
	d := discover(t, &Handler{}, urls(url)+"\napplicationNames: {items: [Lathe]}")
	d.wants("the server", url)
	if name := d.reports[0].Devices[0].Properties[NameProperty]; name != "Lathe" {
		t.Errorf("%s = %q, want Lathe", NameProperty, name)
	}
	discover(t, &Handler{}, urls(url)+"\napplicationNames: {action: Exclude, items: [Lathe]}").wants("no other")
	if err := s.Close(); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	d.wants("none once it is gone")
}

// peer is a program of node-opcua.
type peer struct {
	*exec.Cmd
	stdin io.Closer
	said  chan string // each line once
}

// node runs a script of testdata.
func node(t *testing.T, modules, script string, args ...any) *peer {
	t.Helper()
	words := []string{filepath.Join("testdata", script)}
	for _, a := range args {
		words = append(words, fmt.Sprint(a))
	}
	p := &peer{Cmd: exec.Command("node", words...), said: make(chan string, 1000)}
	p.Env = append(os.Environ(), "NODE_PATH="+modules)
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin, p.Stderr = stdin, os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.said <- lines.Text()
		}
		close(p.said)
	}()
	return p
}

// says waits for a line.
func (p *peer) says(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case line, ok := <-p.said:
			if !ok {
				t.Fatalf("%v ended before it said %q", p.Args, want)
			}
			if strings.TrimSpace(line) == want {
				return
			}
		case <-deadline:
			t.Fatalf("%v has not said %q", p.Args, want)
		}
	}
}

// Two servers of node-opcua, which register with its discovery server; one gives out a
// host name that nobody knows.
func TestNodeOPCUA(t *testing.T) {
	if testing.Short() {
		t.Skip("three programs that make certificates first: make test-all")
	}
	var modules string
	lan.Outside(t, func() {
		modules = npm.Install(t, "node-opcua@2.186.4", "node-opcua-server-discovery@2.186.4")
	})
	folder := t.TempDir() // for their certificates
	ports := [3]int{need.Port(t), need.Port(t), need.Port(t)}
	ldsURL := fmt.Sprintf("opc.tcp://127.0.0.1:%d", ports[0])
	ovenURL, mixerURL := fmt.Sprintf("opc.tcp://127.0.0.1:%d/UA/Oven", ports[1]), fmt.Sprintf("opc.tcp://127.0.0.1:%d/UA/Mixer", ports[2])
	lds := node(t, modules, "lds.js", ports[0], filepath.Join(folder, "lds"))
	lds.says(t, "ready")

	// The rounds go on for as long as the test, of which the first see the discovery
	// server alone.
	everything := discover(t, &Handler{lookup: noHosts}, urls(ldsURL))
	onlyMixer := discover(t, &Handler{lookup: noHosts}, urls(ldsURL)+"\napplicationNames: {action: Exclude, items: [Oven]}")
	direct := discover(t, &Handler{lookup: noHosts}, urls(ovenURL, mixerURL))
	everything.wants("no servers")
	oven := node(t, modules, "server.js", ports[1], "Oven", "127.0.0.1", filepath.Join(folder, "oven"), ldsURL)
	oven.says(t, "registered")
	everything.wants("one server", ovenURL)
	mixer := node(t, modules, "server.js", ports[2], "Mixer", "mixer.invalid", filepath.Join(folder, "mixer"), ldsURL)
	mixer.says(t, "registered")
	everything.wants("two servers", mixerURL, ovenURL)
	everything.warns(`the server "Mixer"`, "mixer.invalid", "is taken to be at "+mixerURL)
	onlyMixer.wants("the one that is not left out", mixerURL)
	direct.wants("both, asked themselves", mixerURL, ovenURL)

	t.Run("FindServersOnNetwork", func(t *testing.T) {
		// Whether the discovery server hears its servers' multicast is between them:
		// another client says.
		deadline := time.Now().Add(20 * time.Second)
		for heard := false; !heard; {
			records, err := opcua.FindServersOnNetwork(t.Context(), ldsURL)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				heard = heard || strings.HasSuffix(r.DiscoveryURL, "/UA/Oven")
			}
			if !heard && time.Now().After(deadline) {
				t.Skip("the discovery server hears no multicast here")
			}
			time.Sleep(50 * time.Millisecond)
		}
		lds := &source{at: mustTarget(t, ldsURL), onNetwork: true, timeout: askTimeout,
			resolver: resolver{lookup: noHosts}}
		f, _, err := lds.round(t.Context(), make(places, 1))
		if err != nil || !slices.ContainsFunc(f.learned, func(t target) bool { return t.url == ovenURL }) {
			t.Errorf("learned %v, %v; want %s among them", f.learned, err, ovenURL)
		}
	})

	// One that is shut down takes itself off the discovery server's list, one that is
	// killed stays on it.
	oven.stdin.Close()
	everything.wants("the one left", mixerURL)
	direct.wants("the one left, asked itself", mixerURL)
	_ = mixer.Process.Kill()
	direct.wants("none")
	everything.wants("the one left on the list", mixerURL)
	_ = lds.Process.Kill()
	everything.wants("none without the discovery server")
}
