// Package dra is the kubelet's DRA driver of the node, slots.kubeslot.io: it prepares ResourceClaims that
// were allocated devices of Configurations with spec.allocator DRA. A device is an Instance, of which each
// result of a claim has as many slots as its consumed capacity says.
//
// To prepare is to claim the slots (package claims) and then to write a CDI spec that has what containers
// get (package cdi). The spec names the slots, and follows the devices (spec.go). What it names is in use until it
// is gone, which it is not before the runtime has no container that may use it (inuse.go). Package claims knows of
// it, as of the slots that a container uses: it releases them then, and makes a SlotClaim again that somebody deletes.
// Nothing else is stored, so that a restart changes nothing. What is to be done is decided by functions of values
// (plan.go). The scheduler only counts slots; to create a SlotClaim is what keeps two from one slot.
//
// The driver runs once there is anything for it to do (serve.go). It reports the health of the devices that
// are prepared (health.go), and releases what a kubelet that has lost its state does not ask for any more
// (leftovers.go).
package dra
