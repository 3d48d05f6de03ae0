package proxy

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/connectivity"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
)

// Clients that speak no CRI, however many, neither end a kubelet's connection with its calls
// nor keep a restarted one out.
func TestGarbageKeepsNoKubeletOut(t *testing.T) {
	const garbage, held = 10_000, 1000
	dir := t.TempDir()
	c := newChainIn(t, dir, nil, true)
	c.runtime.hold = make(chan struct{})
	if _, err := c.runtimeClient.Version(c.ctx, &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	stopping := make(chan error, 1)
	go func() { // a call that lasts, on a connection that is silent meanwhile
		_, err := c.runtimeClient.StopContainer(c.ctx, &runtimeapi.StopContainerRequest{})
		stopping <- err
	}()
	await.That(t, "the runtime to have the call", func() bool { return c.runtime.slow.Load() == 1 })
	before := descriptors(t)
	socket := filepath.Join(dir, "kubecri.sock")
	var open [held]net.Conn // the last ones
	for i := range garbage {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if old := open[i%held]; old != nil {
			old.Close()
		}
		open[i%held] = conn
		defer conn.Close()
		// Silent, half a greeting, another protocol; the server may be faster and close it.
		_, _ = io.WriteString(conn, []string{"", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost: kubecri\r\n\r\n"}[i%3])
		if i%1000 != 999 {
			continue
		}
		most := before + held + MaxConnections + 50
		what := fmt.Sprintf("the proxy to close what is too much of %d connections: to have %d open", i+1, most)
		await.That(t, what, func() (bool, string) {
			now := descriptors(t)
			return now <= most, fmt.Sprint(now)
		})
		restarted, err := Dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runtimeapi.NewRuntimeServiceClient(restarted).CreateContainer(c.ctx, &runtimeapi.CreateContainerRequest{}); err != nil {
			t.Errorf("a new connection after %d: %v", i+1, err)
		}
		restarted.Close()
	}
	if state := c.conn.GetState(); state != connectivity.Ready {
		t.Errorf("the kubelet's connection is %s", state)
	}
	close(c.runtime.hold)
	if err := <-stopping; err != nil {
		t.Errorf("the kubelet's call: %v", err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
