// Package host calls device schedulers, mostly plugins, as KubeDevice documents them. A
// fault of one does not reach the others.
//
// The order, for each node and pod: the plugins as they were given, then, if one
// of them uses it, the group scheduler, once. It sees the node as the plugins'
// AddNode left it, and the pod as their translation left it.
//
//   - call.go: one call of a plugin: panics, errors and hangs become faults
//   - copies.go: what a plugin gets to see, and what is taken over from it
//   - node.go: a node, what its pods hold, and what it would be without some
//   - decide.go: does a pod fit, and what does it get
//   - ask.go: does it fit one of many nodes, of which a Remote is asked together, and of equal ones once
//   - set.go: the plugins, in their order
//   - recognizes.go: does anybody answer for a request
//   - host.go: the nodes there are
//
// A Node is a value that never changes: With and Without return others, so that
// a preemption's what-if is the same code as the accounting. Nothing is kept by a
// pod's name: scores are results, and what pods hold goes by UID.
//
// What pods hold is in NodeInfo.Used alone. A plugin that counts inside of itself
// in TakePodResources is misled by a what-if, as in KubeDevice.
//
// A fault fails closed: a pod that asks for devices does not fit a node that a
// plugin could not be told of. A plugin that hangs is not called again until the
// call returns.
//
// This package imports the group scheduler and packages of types, of which the node's
// side uses contain as well.
package host
