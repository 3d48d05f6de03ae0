package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

// What is asked of the runtime when it has come is asked also if it was connected before anybody looked, and again
// when it is back. A question that the runtime did not answer while it was there ends.
func TestOnReconnect(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	serve := func() *grpc.Server {
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		return server
	}
	server := serve()
	conn, err := proxy.Dial("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatalf("the connection is %s after a minute", state)
		}
	}
	came, ended := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(ended)
		onReconnect(ctx, conn, func(there context.Context) {
			came <- struct{}{}
			<-there.Done()
		})
	}()
	wait := func(what string) {
		t.Helper()
		select {
		case <-came:
		case <-ctx.Done():
			t.Fatalf("waited a minute for a call %s", what)
		}
	}
	wait("though it was connected before")
	server.Stop()
	serve()
	wait("once it is back")
	cancel()
	<-ended
}
