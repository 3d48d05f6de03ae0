// Package deviceplugins is the scheduler plugin that has device schedulers, of .so files
// and over gRPC, decide about pods, as KubeDevice's scheduler does: which nodes fit a
// pod, which is best, and what of a node's devices the pod gets.
//
// In turn: PreFilter reads what the pod asks of plugins; Filter asks the plugins
// whether a node fits, and whether one of them answers for each request; Score
// compares the nodes by what the plugins said of them; Reserve has them allocate
// and count; Bind sends the allocation with the Binding, together with the slots
// that ConfigurationResources gave (package binding). Unreserve, and the end of a
// pod, give it back. Preemption's what-ifs work on copies of nodes.
//
// The calls themselves, and what may go wrong in them, are device-scheduler/host's.
// Package requeue has refused pods tried again. Without a plugin all this costs nothing.
//
//   - options.go, open.go: which plugins there are; sockets.go: those over gRPC, which come and go
//   - request.go: what a pod asks; node.go: what a node has; grant.go: what a bound
//     pod was given; all of them pure
//   - devicecache.go: which nodes there are and what pods hold, fed from the API
//   - judge.go: does a node fit a pod
//   - cycle.go, place.go: the extension points
//   - retry.go: plugins that failed are asked again
package deviceplugins
