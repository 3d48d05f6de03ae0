package main

import (
	"context"
	"fmt"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

const (
	// ownDescriptors are what kubecri needs besides its clients' connections: for checkpoint,
	// CDI specs, runtime and API server, and for discovery, which has a connection for each
	// Configuration of a handler, and for each of its devices that it speaks to.
	ownDescriptors = 4096
	// neededDescriptors are those with all connections that clients may have. Each check of
	// /healthz connects to our own socket, with one descriptor more.
	// In device-plugin mode each resource has two more: its socket, and the kubelet's connection.
	neededDescriptors = ownDescriptors + 2*health.MaxConnections + proxy.MaxConnections + remote.MaxConnections
)

// openFiles tells when the process may open too few files. It serves nevertheless: a node
// without its runtime is worse.
func openFiles() health.Check {
	return health.Check{Name: "open-files", Advice: true, Run: func(context.Context) error {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return fmt.Errorf("read how many files kubecri may open: %w", err)
		}
		return descriptorAdvice(limit.Max) // to which Go has raised the soft limit
	}}
}

// checkDescriptors logs the same when kubecri starts.
func checkDescriptors(ctx context.Context) {
	if err := openFiles().Run(ctx); err != nil {
		klog.FromContext(ctx).Info("Warning: " + err.Error())
	}
}

func descriptorAdvice(limit uint64) error {
	if limit >= neededDescriptors {
		return nil
	}
	return fmt.Errorf("kubecri may open too few files: clients that connect could keep it from serving the kubelet. "+
		"Set LimitNOFILE=65536 in kubecri's unit, or in that of the container runtime for kubecri's pod: "+
		"it may open %d, and needs up to %d", limit, neededDescriptors)
}
