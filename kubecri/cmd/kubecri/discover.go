package main

import (
	"context"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/kubecri/discoveryworker"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// newDiscoverCommand is the discovery worker. It takes kubecri's own flags.
func newDiscoverCommand() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:    discoveryworker.Command,
		Short:  "Run discovery handlers for kubecri, in a process without privileges",
		Hidden: true,
		Args:   cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			socket := o.discovery.worker
			switch socket {
			case workerProcess:
				socket = ""
			case workerNone:
				<-ctx.Done() // as a container that is not needed
				return nil
			}
			return discoveryworker.Serve(ctx, socket, remote.NewRunner(o.discovery.inWorker(klog.FromContext(ctx))))
		},
	}
	addFlags(cmd, o.flags())
	return cmd
}

// inWorker are the handlers that the worker has in it. They log no more than in kubecri.
func (o *discoveryOptions) inWorker(logger klog.Logger) map[string]pb.DiscoveryHandlerServer {
	handlers := map[string]pb.DiscoveryHandlerServer{}
	for _, b := range builtIns {
		if slices.Contains(apart, b.name) {
			handlers[b.name] = standalone.NewService(b.make(o).(discovery.Sharer),
				logger.V(4).WithValues("handler", b.name))
		}
	}
	return handlers
}

// worker returns the worker, which runs until ctx ends; nil for none.
func (o *options) worker(ctx context.Context) remote.Worker {
	switch o.discovery.worker {
	case workerNone:
		return nil
	case workerProcess:
		socket := filepath.Join(o.stateDir, cleanup.WorkerSocket)
		return discoveryworker.NewProcess(ctx, clock.RealClock{}, socket, o.args)
	}
	return discoveryworker.Socket(o.discovery.worker)
}
