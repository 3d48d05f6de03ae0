// Package recovery cleans up what a scheduler has left that ended, or that was at work beside
// this one: pods of which two have one slot. Only a scheduler that leads does so.
//
// Claims are not among it: whether a container uses one, their node alone knows. Its kubecri
// deletes those that no container and no bound pod accounts for, after --claim-grace.
//
// It has no state of its own: the slot cache knows what is left.
package recovery
