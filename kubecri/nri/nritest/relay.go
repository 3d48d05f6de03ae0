// Package nritest stands between an NRI plugin and its runtime in tests.
package nritest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// Relay passes connections on, and keeps back what the runtime says when told to: its
// plugin is then as one that is too slow to read. Safe for concurrent use.
type Relay struct {
	runtime string

	mu    sync.Mutex
	at    []byte        // keep back what has it, and all after it; nil for not
	held  chan struct{} // closed when what is kept back goes on; nil when nothing is
	conns []net.Conn
	ended bool
	wait  sync.WaitGroup
}

// NewRelay listens at a Unix socket for a plugin, until the test ends, and connects it to
// the runtime's.
func NewRelay(t testing.TB, socket, runtime string) *Relay {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{runtime: runtime}
	r.wait.Go(func() {
		for {
			plugin, err := l.Accept()
			if err != nil {
				return
			}
			r.connect(plugin)
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.Release()
		r.mu.Lock()
		r.ended = true
		r.mu.Unlock()
		r.Drop()
		r.wait.Wait()
	})
	return r
}

// HoldAt keeps back the runtime's next call of a method, and all that it says after that.
func (r *Relay) HoldAt(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = []byte(method)
}

// Holds reports whether something is kept back.
func (r *Relay) Holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held != nil
}

// Drop ends the connections that there are.
func (r *Relay) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		conn.Close()
	}
	r.conns = nil
}

// pass returns what the runtime's bytes have to wait for; nil for nothing.
func (r *Relay) pass(said []byte) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil && r.at != nil && bytes.Contains(said, r.at) {
		r.held = make(chan struct{})
	}
	return r.held
}

// Release passes on what was kept back, and what comes then.
func (r *Relay) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
	}
	r.held, r.at = nil, nil
}

// connect passes on until one side has closed; what was said before is passed on first.
func (r *Relay) connect(plugin net.Conn) {
	runtime, err := net.Dial("unix", r.runtime)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || r.ended {
		plugin.Close()
		return
	}
	r.conns = append(r.conns, plugin, runtime)
	r.wait.Go(func() {
		defer runtime.Close()
		io.Copy(runtime, plugin)
	})
	r.wait.Go(func() {
		defer plugin.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := runtime.Read(buffer)
			if held := r.pass(buffer[:n]); held != nil {
				<-held
			}
			if _, failed := plugin.Write(buffer[:n]); failed != nil || err != nil {
				return
			}
		}
	})
}
