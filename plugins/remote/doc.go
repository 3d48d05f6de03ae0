// Package remote is the host's side of plugins that are processes of their own and serve gRPC on
// unix sockets: package types/plugin/registration says what they are, types/plugin/v1alpha1 what is
// called. kubecri and the scheduler have one Sockets each.
//
//   - options.go: the hosts' flags
//   - sockets.go: the folder of sockets
//   - server.go: one socket: its registration, its connection, when it is connected again
//   - plugin.go: a plugin by its name, whatever servers it has; calls
//   - dial.go: the connection, its bounds, and who listens at its other end; codec.go: one of these
//   - device.go: the node's half; held.go: which containers hold its devices
//   - scheduler.go: the scheduler's half, for package host; nodes.go: its copy of the nodes
package remote
