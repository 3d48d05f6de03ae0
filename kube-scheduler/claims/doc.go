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
// What is left behind is released by whoever can know that it is: the claim of a
// pod that waits unbound, by the scheduler; any other, by the kubecri of its node, or
// by the controller once the node cannot.
package claims
