// Package slotsearch chooses slots of one Configuration's Instances for the containers of
// one pod on one node.
//
// It keeps no state. A Problem and what it points to belong to the caller, who fills it in,
// solves it once and reads the answer; the ledger does so for Filter, Reserve and
// preemption alike. There is no clock, no I/O, no lock.
//
// There is one search (search.go). It runs once without a second thought: each container
// in turn takes the first Instance in the order of the strategy. When that fails, although
// another choice may serve all, it runs again with backtracking, hardest container first,
// for at most maxSteps steps. With a Budget both count, together with other searches, up to
// tryMaxSteps; a first choice that is as quick as most pods' does not. Within these bounds it finds
// an assignment whenever there is one; beyond, it says that it gave up.
//
//   - problem.go: what a pod asks for, and the Instances that it can have
//   - uniqueness.go: which slots of an Instance a container may have
//   - search.go: the search
//   - number.go: which of the pod's slots of an Instance each container gets
package slotsearch
