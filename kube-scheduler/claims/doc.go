// Package claims creates a pod's SlotClaims before the pod is bound, for claimMode
// Scheduler: whoever else gives out slots sees them taken, and what another has
// taken is found out before the bind.
//
// A claim is what kubecri would create, so that the node finds it made. Creating it
// is the compare-and-swap, since only one object can have the slot's name.
//
//   - claim.go: the claims of a pod, and who has a slot instead
//   - writer.go: creating and deleting them
//
// A claim is deleted here only by the process that created it, for the bind that it created
// it for. What is left behind is released by the kubecri of its node, which knows whether a
// container uses it, or by the controller once the Node object is gone.
package claims
