// Package cluster brings up a real Kubernetes cluster on one Linux machine and
// takes every trace of it away again.
//
// Nothing is simulated: etcd, kube-apiserver, kube-controller-manager, kubelet,
// containerd and runc are built from their Go modules (folder upstream, one
// pinned module each) and run as ordinary processes. A node is a network
// namespace and a mount namespace of its own; the control plane is a network
// namespace; a bridge in a third one joins them. The host's own network
// namespace gets nothing but a TCP listener on 127.0.0.1 (program forward) that
// makes the API server reachable for kubectl and tests.
//
// A node's /sys is its own: it shows the interfaces, and the devices that hang on
// them, of the node's network namespace. AddMacvtap plugs such a device in; AddMachine
// puts a machine that is no node on the network, such as a camera; Run starts a program
// on either.
//
// To move a version: in its folder of upstream, `go get -tool PACKAGE@VERSION`;
// for Kubernetes, move the replace directives along.
//
// Everything lives beneath one state folder. What a cluster owns is recognised
// without trusting the files there, so that Down works after kill -9 of
// anything: processes carry the state folder in their environment, containers
// sit in a cgroup named after it, mounts lie beneath it.
//
// What is left on the machine on purpose: the state folder's logs (until the
// next Up), the binaries' cache, and the kernel settings a kubelet always makes
// (vm.overcommit_memory, kernel.panic, kernel.panic_on_oops).
package cluster
