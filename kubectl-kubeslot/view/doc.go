// Package view answers the questions that people have about devices: which there
// are, who holds a slot, why a pod waits, what problems there are. It is a pure
// function of objects as the API server has them; see package command for where they
// come from.
//
// A file uses those that stand before it here:
//
//	text, slot, podstatus, requests,   words, and what one object says alone
//	plugindevices
//	view                               the objects, joined
//	reach, slots, list, node           devices: who reaches them, who holds their slots
//	account, wait, pod                 the scheduler's ledger; what is said of a pod
//	shortage, nodefit, instancesonly,  why a pod waits
//	ways, unscheduled, starting, pods
//	finding, doctor_nodes,             problems
//	doctor_parts, doctor
package view
