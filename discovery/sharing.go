package discovery

// Sharer is a Handler that knows ahead of its reports whether its devices are
// shared. Akri's protocol asks that at registration, so a handler that is to run
// standalone needs it. A Result that says otherwise still counts for kubecri;
// Akri's agent goes by the registration alone.
type Sharer interface {
	Handler

	// Shared is whether other nodes may reach the same devices, as a rule.
	Shared() bool
}
