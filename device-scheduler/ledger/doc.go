// Package ledger accounts for device slots: which exist, which node can reach
// them, which pod holds which, and which a pod would get on a node.
//
// It is a deterministic state machine over values: no clock, no I/O, no
// goroutines and no locks, so that every race the scheduler can meet is a
// sequence of calls that a scenario file can spell out (see testdata/scenarios). The
// caller serializes writers; any number of Drafts may read between writes.
//
// A slot is free only if no pod holds it (holders.go) and no SlotClaim that counts is on
// it (claims.go). Its parts:
//
//   - state.go: all that is kept, without functions; the files below change it or read it
//   - configrecord.go, noderecord.go, devices.go: what is known of one Configuration, node,
//     Instance and slot
//   - group.go: Instances that the same nodes reach, ordered by free slots; class.go: nodes that
//     reach the same Instances
//   - slot_counts.go: slots by state; counts.go: an Instance's holders on each node
//   - event.go: what a change lets waiting pods find, free or by preemption
//   - nominate.go: slots kept for pods that preemption made room for
//   - holders.go: pods and the slots they hold
//   - claims.go: SlotClaims, those that count and those of pods which do not use them
//   - double_allocation.go: which of several bound pods keeps a slot
//   - reports.go: what nodes report, and which nodes reach an Instance for it
//   - deviceslices.go, nodes.go, configurations.go: changes of DeviceSlices, nodes and
//     Configurations, one of which owns a name
//   - draft.go: a what-if view for one scheduling cycle
//   - fit.go: what a pod asks for as problems of package slotsearch, which chooses
//   - strategy.go: from which Instance first
//   - preempt.go: which pods would have to go
//   - reach.go: which nodes a request could be served on
//   - feasibility.go: what many nodes have for one request, from counts alone; snapshot.go:
//     the nodes' places
//   - shortfall.go: why a pod does not fit
package ledger
