package deviceplugins

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// DefaultFolder is where the plugins are, as in KubeDevice. That it does not exist
// means that there are none.
const DefaultFolder = "/schedulerplugins"

// Options say which plugins are loaded.
type Options struct {
	// Folder of the *.so files; "" means DefaultFolder.
	Folder string
	// Policy about bad files.
	Policy load.Policy
	// Sockets is the folder of the sockets of plugins over gRPC, which may be missing; "" means none.
	Sockets string
	// Policies say who waits while a plugin over gRPC is away.
	Policies map[string]string
	// Timeout is how long such a plugin may take for an answer about some nodes.
	Timeout time.Duration

	connected *remote.Sockets // once the first profile is made, if there is a folder
}

// DefaultOptions are those without any flag.
func DefaultOptions() Options {
	return Options{Sockets: registration.SchedulersDirectory, Timeout: time.Second}
}

// Away names the plugins that pods wait for and that are away; nil if there are none. To be called
// once the scheduler is set up.
func (o *Options) Away() error {
	if o.connected == nil {
		return nil
	}
	return o.connected.Away()
}

// AddFlags adds the flags of the options.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Folder, "devschedpath", o.Folder, fmt.Sprintf("Directory of device scheduler plugins: its *.so files are loaded in the order of their names. (default %s, which may be missing)", DefaultFolder))
	fs.StringVar(&o.Sockets, "plugin-sockets", o.Sockets,
		"Directory of the sockets of device scheduler plugins over gRPC, which may be missing; empty to use none.")
	fs.StringToStringVar(&o.Policies, "plugin-policy", o.Policies, "Whether pods that request the resources of a "+
		"plugin over gRPC wait while it is away: `NAME=required|ignore,...`. Those that are not named here are required "+
		"once they were there.")
	fs.DurationVar(&o.Timeout, "plugin-timeout", o.Timeout,
		"How long a plugin over gRPC may take to say which of up to 64 nodes fit a pod, or to allocate. After three "+
			"calls in a row that took longer it is not called for a while.")
	fs.Var(&o.Policy, "devsched-bad-plugins", "What to do if a plugin cannot be loaded: refuse to start, or skip that file.")
}
