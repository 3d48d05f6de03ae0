// Package cleanup takes away what kubecri leaves on a node that it is removed from: in
// the API the node's slots and device plugins' resources in node.status, its
// annotations, DeviceSlices and SlotClaims; on the host CDI specs, sockets and its own
// files. Containers that run are not touched.
//
// It removes whole keys of node.status, never sets them to 0: a kubelet ignores an
// extended resource that its node does not have, and refuses pods, and at its next
// restart ends those that run, for one that stands at 0.
package cleanup
