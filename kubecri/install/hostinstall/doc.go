// Package hostinstall puts kubecri on a host that runs a kubelet under systemd, and
// takes it away again.
//
// Look reads what is there into a Host. Install and Uninstall are functions of that
// value: they return a Plan, a list of file changes and commands, or why there is
// none. Print shows a Plan, and Apply carries it out, undoing what it did when a step
// fails or the kubelet does not come back healthy.
//
// What the kubelet used before is kept in RecordFile, which is written before
// anything else is changed. So a run that was interrupted is taken up by the next
// one, of either kind: a Plan depends on what the files say, not on how far somebody
// came.
package hostinstall
