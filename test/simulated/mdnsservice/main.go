// Command mdnsservice announces a service by DNS-SD over multicast DNS, for tests to
// discover, and says goodbye on SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/brutella/dnssd"
)

func main() {
	var cfg dnssd.Config
	flag.StringVar(&cfg.Name, "name", "simulated", "instance name")
	flag.StringVar(&cfg.Type, "type", "_http._tcp", "service type")
	flag.StringVar(&cfg.Host, "host", "simulated", "host name, without .local")
	flag.IntVar(&cfg.Port, "port", 80, "port of the service; nothing is served there")
	text := flag.String("txt", "", "TXT records: key=value, separated by commas")
	flag.Parse()
	cfg.Text = map[string]string{}
	for _, record := range strings.FieldsFunc(*text, func(c rune) bool { return c == ',' }) {
		key, value, _ := strings.Cut(record, "=")
		cfg.Text[key] = value
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := announce(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "mdnsservice:", err)
		os.Exit(1)
	}
}

func announce(ctx context.Context, cfg dnssd.Config) error {
	service, err := dnssd.NewService(cfg)
	if err != nil {
		return err
	}
	responder, err := dnssd.NewResponder()
	if err != nil {
		return err
	}
	if _, err := responder.Add(service); err != nil {
		return err
	}
	if err := responder.Respond(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
