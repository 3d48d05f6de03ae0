// Package slotcache is the scheduler's cache of slots. It feeds the ledger from the API, and
// requeues waiting pods when an event may help them.
//
// Its state is in one Cache, which all profiles of a process share and which alone changes it:
// the ledger, the waiting pods (in a requeue.Queue) and why they wait, and for whom slots are
// kept. One lock serializes who writes; a scheduling cycle reads through a Cycle, which has the
// nodes of the scheduler's snapshot.
//
//   - start.go: the informers, and when the ledger is in step
//   - objects.go, claims.go, pods.go: what the API shows, and what the scheduler itself is about
//     to do
//   - dra.go: what Dynamic Resource Allocation has of Instances, and who is to give them
//   - cycle.go, snapshot.go, advertised.go: what one cycle asks
//   - nominations.go: for which nominated pods slots are reserved, and how long; unclaimed.go: which
//     slots are kept for bound pods until their node, which chooses slots itself, has claimed as many
//   - events.go: what the ledger's events are to package requeue
//   - waiting.go, metrics.go, log.go: what people see
package slotcache
