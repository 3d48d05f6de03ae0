// Package group is the group scheduler: it places what containers ask of
// hierarchical resources, such as "two GPUs of one NVLink group", onto the
// groups that a node has.
//
// A resource "resource/group/gpugrp0/1/gpu/dev3/cards" reads as: group gpugrp0,
// index 1; in it group gpu, index dev3; of that the leaf cards. A request has
// the same form, but its indexes are only labels: requests under one label get
// one group of the node. Groups match by name, level by level, so that a request
// must have as many levels as the node (see resource.TranslateResource).
//
// The rules are KubeDevice's (microsoft/KubeDevice, device-scheduler/grpalloc),
// and so are the results:
//
//   - Containers are placed in the order of their names, running ones first,
//     then init containers. Within one, groups are placed in the order of their
//     names and indexes, each where it scores best, and that stays: there is no
//     search for a better combination.
//   - A group's score at a location is the mean score of all leaves there. A
//     leaf's is the share of it that is used, so that placements pack.
//   - A location that this pod used already goes before any score. As used
//     counts also what was best within a location that was then not taken.
//   - Of equal scores the last location wins, in the order of the index's bytes.
//   - Running containers add up. Init containers run before, one at a time, so
//     that a pod needs of each leaf the greatest of the sum and of each of them.
//   - The pod's score is that of the whole node after the last running container.
//
// It differs in these, on purpose:
//
//   - Where KubeDevice finds no place for an init container, it is placed again,
//     counting what the container has already. KubeDevice counts each of its
//     devices alone while it chooses, so that it gives one device twice, and then
//     finds that the pod does not fit.
//   - A container without group requests leaves the score; there it resets it
//     to 0, so that a sidecar's name decides whether topology counts.
//   - A leaf that other pods overuse refuses only pods that ask for it, not
//     every pod on the node.
//   - Names are plain text, not part of a regular expression. Negative counts
//     and sums that overflow do not fit; unknown scorers mean the default one.
//   - What a plugin chose, in AllocateFrom, is kept, and everything else is placed
//     around it. KubeDevice takes all of a container's places as chosen, or none.
//   - A container that does not fit has score 0; KubeDevice gives it what was reached.
//   - Requests whose sum comes near MaxInt64 do not fit, and neither does a container to
//     which a plugin gave the values 1 and 2 of one enum leaf.
//   - A place in AllocateFrom of a resource that is no longer requested is dropped.
//   - What Used says of an enum leaf stays as it is: such leaves are not used up.
//   - AllocateFrom is written only if the whole pod fits, and entries that are
//     not group resources, such as slots, stay in it.
//
// Like the ledger, all but Scheduler is functions of values: no clock, no I/O,
// no goroutines. Its parts:
//
//   - tree.go: resource names as a tree, parsed once for a node
//   - scorer.go: the ways to count and score a leaf
//   - state.go: what is used of a node while a pod is being placed
//   - fit.go: placing a pod
//   - reasons.go: why a pod does not fit
//   - usage.go: what a placed pod holds
//   - scheduler.go: the same as a devicescheduler.DeviceScheduler
package group
