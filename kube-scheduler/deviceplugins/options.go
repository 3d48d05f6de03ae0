package deviceplugins

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/plugins/load"
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
}

// AddFlags adds the flags of the options.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Folder, "devschedpath", o.Folder, fmt.Sprintf("Directory of device scheduler plugins: its *.so files are loaded in the order of their names. (default %s, which may be missing)", DefaultFolder))
	fs.Var(&o.Policy, "devsched-bad-plugins", "What to do if a plugin cannot be loaded: refuse to start, or skip that file.")
}
