// Command onvifcamera is a simulated ONVIF camera (package onvifcamera). Once it
// can be found it prints one line to standard output:
//
//	ready <uuid> <device service URL>…
//
// SIGTERM and SIGINT end it with a Bye, SIGHUP makes it say Hello again, SIGUSR1
// makes it deaf to multicast and SIGUSR2 ends that. SIGKILL is a loss of power.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/test/onvifcamera"
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	config := onvifcamera.Config{}
	flags := pflag.NewFlagSet("onvifcamera", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringVar(&config.UUID, "uuid", "3fa1fe68-b915-4053-a3e1-a8294833fe3c", "Identity of the camera.")
	flags.StringVar(&config.Interface, "interface", "", "Network interface to live on; all that are up when empty.")
	flags.IntVar(&config.Port, "port", 80, "Port of the HTTP server; 0 for any free one.")
	flags.StringVar(&config.User, "user", "", "User that may log in; nobody has to when empty.")
	flags.StringVar(&config.Password, "password", "", "Password of the user.")
	auth := flags.String("auth", string(onvifcamera.AuthBoth), "How users log in: wss (WS-UsernameToken), digest (HTTP) or both.")
	flags.StringVar(&config.Name, "name", "Simulated", "Name, which is one of the scopes.")
	flags.StringArrayVar(&config.Scopes, "scope", nil, "A further scope, such as onvif://www.onvif.org/location/hall. May be repeated.")
	flags.StringArrayVar(&config.XAddrs, "xaddr", nil, "URL of the device service to tell, instead of the interface's. May be repeated.")
	flags.StringVar(&config.MAC, "mac", "", "MAC address to tell, instead of the interface's.")
	flags.StringVar(&config.IP, "ip", "", "IPv4 address to tell in GetNetworkInterfaces, instead of the one asked.")
	flags.DurationVar(&config.ClockOffset, "clock-offset", 0, "How far the clock is ahead, such as 2h or -90s.")
	flags.BoolVar(&config.NoXAddrsInMatches, "no-xaddrs", false, "Tell addresses only to who resolves, as WS-Discovery allows.")
	verbose := flags.Bool("verbose", false, "Log each message.")
	if err := flags.Parse(os.Args[1:]); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	config.Auth = onvifcamera.Auth(*auth)
	if *verbose {
		config.Log = log.Printf
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	camera, err := onvifcamera.Start(config)
	if err != nil {
		return err
	}
	fmt.Println("ready", config.UUID, strings.Join(camera.XAddrs(), " "))
	for s := range signals {
		switch s {
		case unix.SIGHUP:
			camera.Hello()
		case unix.SIGUSR1:
			camera.SetDeaf(true)
		case unix.SIGUSR2:
			camera.SetDeaf(false)
		default:
			camera.Stop()
			return nil
		}
	}
	return nil
}
