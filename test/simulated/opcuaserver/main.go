// Command opcuaserver is an OPC UA server, gopcua's, for tests to discover: without
// security, and with nothing to read but what every server has.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gopcua/opcua/server"
	"github.com/gopcua/opcua/ua"
)

func main() {
	address := flag.String("address", "127.0.0.1", "address to listen on, and to be found at")
	port := flag.Int("port", 4840, "port to listen on")
	name := flag.String("name", "simulated", "application name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := serve(ctx, *address, *port, *name); err != nil {
		fmt.Fprintln(os.Stderr, "opcuaserver:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, address string, port int, name string) error {
	s := server.New(
		server.EndPoint(address, port),
		server.ServerName(name),
		server.EnableSecurity("None", ua.MessageSecurityModeNone),
		server.EnableAuthMode(ua.UserTokenTypeAnonymous),
	)
	if err := s.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close()
}
