// Package claims owns this node's claims: the entries of
// Instance.spec.deviceUsage that say that a container here uses a slot.
//
// A claim is taken before the container is created and given back when no
// container of a live sandbox uses the slot any more. Claims are written by
// compare-and-swap: an Update that carries the resourceVersion that the decision
// was made on. Claims of other nodes are never written.
//
// A scheduler may have claimed the slots for the pod already (its claimMode
// Scheduler); such a claim is kept while the pod is bound to the node (pods.go).
//
// What runs here is known from the runtime alone (book.go): each container
// carries the annotations of its slots, so nothing is stored and a killed
// process loses nothing. What the claims should be follows from that (decide.go,
// verify.go; pure functions). Taking (take.go) is part of CreateContainer;
// everything else happens later and is retried until it is done (reconcile.go,
// resync.go, events.go), so that no call of the kubelet waits for the API server but the
// creation of a container that was assigned devices.
//
// Order of locks: an Instance's (one writer of its claims in this process at a
// time), then the book's.
package claims
