package main

import (
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

// checkDescriptors logs when the process may open too few files. It serves nevertheless: a
// node without its runtime is worse. Go has raised the soft limit to the hard one.
func checkDescriptors(logger klog.Logger) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		logger.Error(err, "Cannot read how many files kubecri may open")
		return
	}
	if advice := descriptorAdvice(limit.Max); advice != "" {
		logger.Info("Warning: "+advice, "limit", limit.Max, "needed", neededDescriptors)
	}
}

func descriptorAdvice(limit uint64) string {
	if limit >= neededDescriptors {
		return ""
	}
	return "kubecri may open too few files: clients that connect could keep it from serving the kubelet. Set LimitNOFILE=65536 in kubecri's unit, or in that of the container runtime for kubecri's pod"
}
