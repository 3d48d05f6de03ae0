// Package binding sends the one Binding of a pod that got devices, with all that
// our plugins gave it in the Binding's annotations. The API server merges those
// into the pod in the same write that sets its node: a pod is never bound without
// its assignment.
//
// At Reserve each plugin contributes its part of the assignment to the cycle's
// state. Whichever of them comes first at Bind sends all parts, so that it does not
// matter which of the plugins a profile has.
//
// One plugin may have a step done just before the Binding is sent, and taken back if
// the pod turns out not to be bound.
//
//   - input.go: what the pod's author wrote into the annotation
//   - contribute.go: the parts of a pod's assignment, and the step before the Binding
//   - merge.go: their sum, as it is written into the annotation
//   - bind.go: the Binding, also when the API server's answer is lost
package binding
