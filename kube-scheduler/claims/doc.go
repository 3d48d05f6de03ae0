// Package claims writes a pod's slots into Instance.spec.deviceUsage before the
// pod is bound, for claimMode Scheduler: whoever else gives out slots sees them
// taken, and what another has taken is found out before the bind.
//
// A claim has the value that kubecri would write, so that the node finds it made.
// It is written by compare-and-swap on the slot's own entry: a JSON patch that
// tests that the entry is free. Writers of other slots of the same Instance do not
// collide with it.
//
//   - plan.go: what to write, from an Instance as last seen; pure
//   - writer.go: writing it, and taking it back
//   - line.go: one patch of an Instance at a time for all who wait for one, whatever
//     the API server's answer
//
// What is left behind is released by whoever can know that it is: a claim that
// names a pod which waits unbound, by the scheduler; any claim that no container
// and no bound pod of its node accounts for, by the node's kubecri after a grace
// period (kubecri/claims). An instance-level claim names no pod, so that only the
// latter can tell.
package claims
