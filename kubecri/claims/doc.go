// Package claims owns this node's claims: the SlotClaim objects that say that a
// container here uses a slot.
//
// A claim is created before the container is, and deleted when no container of a
// live sandbox uses the slot any more. To create is to compare and swap: only one
// object can have the slot's name. Claims of other nodes are never deleted, nor is
// one that was made anew since it was looked at.
//
// A scheduler may have claimed the slots for the pod already (its claimMode
// Scheduler); such a claim is kept while the pod is bound to the node (pods.go).
//
// In device-plugin mode ids of the kubelet's hold slots, and what is in use is known from the runtime
// and the kubelet (kubelet.go).
//
// What runs here is known from the runtime alone (containers.go): each container
// carries the annotations of its slots, so nothing is stored and a killed
// process loses nothing. What the claims should be follows from that (decide.go,
// verify.go; pure functions). Taking (take.go) is part of CreateContainer;
// everything else happens later and is retried until it is done (reconcile.go,
// resync.go, events.go, fence.go), so that no call of the kubelet waits for the API server but the
// creation of a container that was assigned devices.
//
// Order of locks: a slot's (one at its claim in this process at a time), then the
// containers' or the store's.
package claims
