// Package v0 is Akri's discovery protocol, generated from discovery.proto: how the
// node's agent and discovery handlers talk to each other.
package v0

const (
	// DefaultDirectory is the directory of discovery handlers in Akri's chart, on the node
	// and in handlers' containers.
	DefaultDirectory = "/var/lib/akri"

	// RegistrationSocket is the file name, in that directory, of the unix socket on which
	// the agent serves Registration.
	RegistrationSocket = "agent-registration.sock"

	// DefaultPort is the TCP port of handlers that do not serve a unix socket.
	DefaultPort = 10000
)
