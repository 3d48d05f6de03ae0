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
	// Options are those of plugins over gRPC.
	remote.Options

	connected *remote.Sockets // once the first profile is made, if there is a folder
}

// DefaultOptions are those without any flag.
func DefaultOptions() Options {
	return Options{Options: remote.Options{Sockets: registration.SchedulersDirectory, Timeout: time.Second}}
}

// Away names the plugins that pods wait for and that are away; nil if there are none. To be called
// once the scheduler is set up.
func (o *Options) Away() error {
	return o.connected.Away()
}

// AddFlags adds the flags of the options.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Folder, "devschedpath", o.Folder, fmt.Sprintf("Directory of device scheduler plugins: its *.so files are loaded in the order of their names. (default %s, which may be missing)", DefaultFolder))
	fs.Var(&o.Policy, "devsched-bad-plugins", "What to do if a plugin cannot be loaded: refuse to start, or skip that file.")
	o.Options.AddFlags(fs)
}
