// Package recovery cleans up what a scheduler has left that ended, or that was at work beside
// this one: pods of which two have one slot, and claims of pods that were never bound. Only a
// scheduler that leads does so.
//
// It has no state of its own: the slot cache knows what is left.
package recovery
