// Package devicepluginmode gives out device slots through the kubelet's device plugins,
// for nodes whose runtime and scheduler stay as they are: kubecri --mode=device-plugin.
//
// There is a plugin for each Configuration with devices on this node, and one for each of
// its Instances. Package deviceids decides which ids they list and which slot an id is.
// Here is the rest: the SlotClaims that make a slot this node's (account.go, holds.go,
// watch.go, take.go), what of them is in use and what is released (inuse.go, release.go), and the
// servers that the kubelet talks to (server.go, kubelet.go).
//
// The kubelet never says which pod a call is for, nor that a pod has given back its ids.
// So the holder of a SlotClaim is the kubelet's id, and a claim is released when neither
// the kubelet's pod-resources nor a container of the runtime has it.
//
// Order of locks: the mutex (of allocations, or of releases), then the account's mutex or
// the inventory's.
package devicepluginmode
