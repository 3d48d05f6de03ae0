// Package recovery resolves double allocations: two bound pods have one slot, because another
// scheduler ended, or worked beside this one. Only the scheduler that leads does so.
//
// It leaves claims alone: only their node knows whether a container uses one. kubecri deletes
// claims that no container and no bound pod accounts for, after --claim-grace.
//
// It has no state of its own: it asks the ledger each time which double allocations there are.
package recovery
