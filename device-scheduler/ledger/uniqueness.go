package ledger

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

// Which slots uniqueness allows a pod is decided in package slotsearch. Here is what of it concerns
// other pods, and how it is called.

// oncePerNode reports whether a node's pods get one configuration-level slot of an Instance together:
// then what one of them gives up helps the others there, whoever has the slot next.
func (conf *configRecord) oncePerNode() bool { return conf.unique() == akriv0.UniquePerNode }

// atMostOne says what each scope of uniqueness allows; "" stands for none.
var atMostOne = map[akriv0.UniqueScope]string{
	akriv0.UniquePerContainer: ", at most one slot per Instance in each container",
	akriv0.UniquePerPod:       ", at most one slot per Instance in each pod",
	akriv0.UniquePerNode:      ", at most one slot per Instance on each node",
}
