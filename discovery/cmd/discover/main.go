// Command discover is for authors of discovery handlers. It takes the part of the node's
// agent: it accepts the handler's registration, asks it for devices, and prints each
// report as YAML. It needs no cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// retryInterval paces a handler that fails.
const retryInterval = time.Second

type options struct {
	directory, handler, details string
	properties                  []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flags := pflag.NewFlagSet("discover", pflag.ExitOnError)
	flags.StringVar(&o.handler, "handler", "", "name of the handler to ask, as in spec.discoveryHandler.name")
	flags.StringVar(&o.details, "details", "", "discoveryDetails")
	flags.StringArrayVar(&o.properties, "property", nil, "a discoveryProperty, as name=value; may be repeated")
	flags.StringVar(&o.directory, "discovery-handlers-directory", pb.DefaultDirectory, "directory of handlers' sockets, the one that the handler is started with")
	flags.Parse(os.Args[1:])
	klog.SetOutput(os.Stderr)
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "discover: %v\n", err)
		os.Exit(1)
	}
}

// run asks each endpoint of the handler until ctx ends.
func run(ctx context.Context, o options, output io.Writer) error {
	if o.handler == "" {
		return errors.New("--handler is missing (see --help)")
	}
	request := discovery.Request{Details: o.details, Properties: map[string][]byte{}}
	for _, p := range o.properties {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return fmt.Errorf("--property %q: want name=value", p)
		}
		request.Properties[name] = []byte(value)
	}
	registry := discovery.NewRegistry()
	server, err := remote.NewServer(remote.Config{Registry: registry, Directory: o.directory})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { server.Run(ctx) })
	askAll(ctx, registry, o.handler, request, &printer{output: output})
	return nil
}

// askAll asks each endpoint of the handler while it is registered, until ctx ends.
func askAll(ctx context.Context, registry *discovery.Registry, handler string, request discovery.Request,
	out *printer) {
	var running sync.WaitGroup
	defer running.Wait()
	asked := map[*discovery.Source]context.CancelFunc{}
	for {
		sources, changed := registry.Sources(handler)
		for source, stop := range asked {
			if !slices.Contains(sources, source) {
				stop()
				delete(asked, source)
			}
		}
		for _, source := range sources {
			if asked[source] == nil {
				asking, stop := context.WithCancel(ctx)
				asked[source] = stop
				running.Go(func() { ask(asking, source, request, out) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// ask asks one endpoint, again when it fails, until ctx ends.
func ask(ctx context.Context, source *discovery.Source, request discovery.Request, out *printer) {
	request.Warn = func(message string) { out.print("%s warns: %s\n", source.ID, message) }
	for last := ""; ; {
		renewed := source.Renewed()
		err := source.Handler.Discover(ctx, request, func(result discovery.Result) {
			last = ""
			out.report(source.ID, result)
		})
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			out.print("%s failed: %v\n", source.ID, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-renewed:
		case <-time.After(retryInterval):
		}
	}
}

// printer prints for several goroutines.
type printer struct {
	mu     sync.Mutex
	output io.Writer
}

func (p *printer) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.output, "# %s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...)
}

func (p *printer) report(id string, result discovery.Result) {
	text, err := yaml.Marshal(append([]discovery.Device{}, result.Devices...)) // [] for none
	if err != nil {
		text = []byte(err.Error())
	}
	p.print("%s reports %d devices, shared: %t\n%s", id, len(result.Devices), result.Shared, text)
}
