// Package soplugins drives the device plugins of a node, loaded from .so
// files, as KubeDevice documents them: New, Start, then UpdateNodeInfo again and
// again, and Allocate for each container that was assigned something.
//
//   - call.go: one call of a plugin: panics, errors and hangs become faults
//   - lifecycle.go: a plugin is started, tried again, and asked what the node has
//   - nodeinfo.go: what the plugins say of the node, checked and merged
//   - labels.go: the Node's labels: what plugins read of them, and want there
//   - lost.go: devices that pods hold and plugins report as lost
//   - allocate.go: what a container gets, and who has to answer for it
//   - edits.go: what Allocate returned, checked
//   - plugins.go: the plugins there are, and how they are
//
// Plugins get copies in which no map is nil. The calls of one never overlap; a
// call that does not return in time is left behind, and the plugin is not called
// again until it has returned. A plugin that fails keeps its last good data, and
// the others go on.
package soplugins
