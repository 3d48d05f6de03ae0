// Package ledger accounts for device slots: which exist, which node can reach
// them, which pod holds which, and which a pod would get on a node.
//
// It is a deterministic state machine over values: no clock, no I/O, no
// goroutines and no locks, so that every race the scheduler can meet is a
// sequence of calls that a scenario file can spell out (see testdata/scenarios). The
// caller serializes writers; any number of Drafts may read between writes. A View, which
// only remembers answers, has a lock of its own.
//
// A slot is free only if no pod holds it (holders.go) and no SlotClaim that counts is on
// it (noderecord.go). What is kept is in state.go. The other files use those before them:
//
//   - slots.go: what is known of a slot, and who may have it
//   - configrecord.go, group.go, class.go, devices.go: Configurations, Instances that the same nodes
//     reach, nodes that reach the same Instances, devices
//   - noderecord.go, numbers.go, slot_counts.go: nodes, and which of their reports and claims count; slots by state
//   - event.go: what a change lets waiting pods find, free or by preemption
//   - nominate.go, claims.go, reports.go, holders.go, deviceslices.go, nodes.go, configurations.go:
//     the changes; allocator.go: whose slots are DRA's, or are to be
//   - strategy.go, draft.go, fit.go: which slots a pod would get, as a problem for package
//     slotsearch; shortfall.go: why it gets none
//   - view.go, score.go, reach.go, preempt.go, double_allocation.go: what the scheduler asks
package ledger
