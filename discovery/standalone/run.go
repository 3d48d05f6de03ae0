// Package standalone makes a discovery handler a program of its own, which registers
// with the node's agent: kubecri's, or Akri's. Flags and environment are Akri's, so
// that the program can stand in for Akri's handler of the name.
package standalone

import (
	"context"
	"errors"
	goflag "flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
	"github.com/kubeslot/kubeslot/version"
)

// Run is the whole main of a handler's program. new adds the handler's own flags, if
// it has any, and returns the handler, which must be a discovery.Sharer; Run parses
// the command line into them. Run ends the process with SIGINT and SIGTERM (exit
// status 0), a wrong command line (2), and where it cannot serve (1).
func Run(new func(flags *pflag.FlagSet) discovery.Handler) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status := run(ctx, os.Args, os.Getenv, os.Stdout, os.Stderr, new)
	stop()
	klog.Flush()
	os.Exit(status)
}

// run is Run without the process. --help and --version are printed to out, errors to errOut.
func run(ctx context.Context, args []string, env func(string) string, out, errOut io.Writer,
	new func(*pflag.FlagSet) discovery.Handler) (status int) {
	var options Options
	flags := pflag.NewFlagSet(filepath.Base(args[0]), pflag.ContinueOnError)
	flags.SetOutput(out)
	flags.SortFlags = false
	handler := new(flags)
	options.addFlags(flags, env)
	printVersion := flags.Bool("version", false, "print the version, and end")
	flags.Usage = func() {
		fmt.Fprintf(out, "%s is the discovery handler %q as a program of its own. It registers with the\n"+
			"node's agent (kubecri or Akri's) and finds devices for it.\n\nFlags:\n%s",
			flags.Name(), handler.Name(), flags.FlagUsages())
	}
	err := flags.Parse(args[1:])
	if err == nil {
		err = check(flags)
	}
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errOut, "%s: %v (see --help)\n", flags.Name(), err)
		return 2
	case *printVersion:
		version.Print(out)
		return 0
	}
	if err := Serve(ctx, handler, options); err != nil {
		klog.FromContext(ctx).Error(err, "The discovery handler cannot serve", "handler", handler.Name())
		return 1
	}
	return 0
}

// check is an error of a command line that cannot be meant. Durations are between two looks for devices: without one
// a handler would look all the time.
func check(flags *pflag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		if d, err := flags.GetDuration(f.Name); err == nil && d <= 0 {
			errs = append(errs, fmt.Errorf("--%s %s: want more than 0s", f.Name, d))
		}
	})
	return errors.Join(errs...)
}

// Options are where a handler serves.
type Options struct {
	// Directory is the directory of discovery handlers, with the agent's socket.
	Directory string

	// IP is this pod's address, to serve TCP on. Without, the handler serves the
	// unix socket <Directory>/<name>.sock.
	IP string

	// Port is the TCP port beside IP.
	Port int
}

func (o *Options) addFlags(flags *pflag.FlagSet, env func(string) string) {
	directory := env("DISCOVERY_HANDLERS_DIRECTORY")
	if directory == "" {
		directory = pb.DefaultDirectory
	}
	flags.StringVar(&o.Directory, "discovery-handlers-directory", directory,
		"directory of the agent's registration socket, and of this handler's (environment: DISCOVERY_HANDLERS_DIRECTORY)")
	flags.StringVar(&o.IP, "pod-ip", env("POD_IP"),
		"address to serve TCP on, instead of a unix socket (environment: POD_IP)")
	flags.IntVar(&o.Port, "port", pb.DefaultPort, "TCP port to serve on, with --pod-ip")

	var logs goflag.FlagSet
	klog.InitFlags(&logs)
	flags.AddGoFlag(logs.Lookup("v"))
}
