// Package load loads plugins from .so files, for kube-scheduler and for kubecri.
//
// plugin.Open trusts its file: it runs whatever is in it, names one mismatch at
// a time, and with a C library it ends the process. So every file is checked
// before it is opened, and what is wrong with it is said all at once, with the
// command that rebuilds it:
//
//   - host.go: what this binary is made of, which a plugin has to match
//   - check.go: what is wrong with a file, without opening it
//   - trust.go: who could have written the file
//   - kind.go: the two kinds of plugin and their factories
//   - load.go: a folder of plugins
//   - command.go: the same as a command, `plugin check`
package load
