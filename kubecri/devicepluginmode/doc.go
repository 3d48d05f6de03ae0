// Package devicepluginmode gives out device slots through the kubelet's device plugins,
// for nodes whose runtime and scheduler stay as they are: kubecri --mode=device-plugin.
//
// There is a plugin for each Configuration with devices on this node, and one for each of
// its Instances. Package deviceids decides which ids they list and which slot an id is.
// Package claims owns the node's SlotClaims, as in the other modes. Here is the rest: who else has
// slots (watch.go), what is given to a container (take.go), what the kubelet has asked for and pods
// request, so that it is not released (holds.go, inuse.go, release.go), and the servers that the
// kubelet talks to (server.go, kubelet.go).
//
// The kubelet never says which pod a call is for, nor that a pod has given back its ids.
// So the holder of a SlotClaim is the kubelet's id, and a claim is released when neither
// the kubelet's pod-resources nor a container of the runtime has it.
//
// Order of locks: the mutex of allocations, then package claims', then the mutexes here.
package devicepluginmode
