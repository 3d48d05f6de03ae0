package discovery

import (
	"context"
	"reflect"
)

// Request is what a Configuration asks a handler to look for: the proto's
// DiscoverRequest.
type Request struct {
	// Details are spec.discoveryHandler.discoveryDetails as written, in the
	// handler's own format, usually YAML.
	Details string

	// Properties are spec.discoveryHandler.discoveryProperties, with Secrets and
	// ConfigMaps resolved. An optional one that does not exist is left out.
	Properties map[string][]byte

	// Secret is true if a value of Properties is that of a Secret: a handler in another process
	// gets it only where nobody else can.
	Secret bool

	// Before are the devices that the node reported when the handler worked last, those first that have
	// gone since and are in use: for a handler whose IDs depend on what else is there, so that devices
	// keep theirs. They must not be changed. Handlers in other processes do not get them.
	Before []Device

	// CABundle is spec.handlerCABundle, for handlers that serve TLS.
	CABundle []byte

	// Warn, if set, is told what the Configuration's author should know though
	// discovery works, such as a key that the handler does not have. What it was told
	// before it passes over. Safe for concurrent use.
	Warn func(message string)
}

// Result is everything that a handler sees at one time.
type Result struct {
	// Devices are all devices there are now: one that is missing is gone.
	Devices []Device

	// Shared is true when other nodes may reach the same devices, so that equal
	// IDs mean the same device everywhere.
	Shared bool
}

// Handler finds devices of one kind. It must be safe for concurrent use: each
// Configuration that names it has a Discover of its own.
type Handler interface {
	// Name is what Configurations select it by, such as "onvif".
	Name() string

	// Discover looks for devices until ctx ends. It calls report with the full
	// list as soon as it knows it, also when that is empty, and again whenever it
	// changes; never concurrently. It returns promptly once ctx has ended. Any
	// earlier return is a failure, or of an error that wraps ErrInvalid, the
	// Configuration's author's. Then it is called again; meanwhile the last report
	// stands, because a handler that broke says nothing of devices.
	Discover(ctx context.Context, request Request, report func(Result)) error
}

// Changes returns report for who calls it also when nothing has changed: a result that
// equals the last one is not reported.
func Changes(report func(Result)) func(Result) {
	var last *Result
	return func(now Result) {
		if last == nil || !reflect.DeepEqual(now, *last) {
			last = &now
			report(now)
		}
	}
}

// Sharer is a Handler that knows ahead of its reports whether its devices are
// shared. Akri's protocol asks that at registration, so a handler that is to run
// standalone needs it. A Result that says otherwise still counts for kubecri;
// Akri's agent goes by the registration alone.
type Sharer interface {
	Handler

	// Shared is whether other nodes may reach the same devices, as a rule.
	Shared() bool
}
