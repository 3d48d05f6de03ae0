// Package registration is how a plugin that is a process of its own says what it is, generated from
// registration.proto. Package v1alpha1 beside it is what is called then.
package registration

const (
	// DevicesDirectory is where the sockets of nodes' halves are, and SchedulersDirectory where
	// those of the scheduler's are, unless --plugin-sockets says otherwise.
	DevicesDirectory    = "/run/kubeslot/plugins/devices"
	SchedulersDirectory = "/run/kubeslot/plugins/schedulers"
)
