package remote

import (
	"time"

	"github.com/spf13/pflag"
)

// The policies say who waits while a plugin is away.
const (
	// Required is the default. Pods that request the plugin's resources wait, and containers that
	// were or may have been assigned its devices are refused.
	Required = "required"
	// Ignore refuses only containers that were assigned the plugin's devices, or, before it has said
	// which these are, what no other plugin names.
	Ignore = "ignore"
)

// Options are a host's flags about plugins.
type Options struct {
	// Sockets is the folder where plugins make their sockets; "" for none. It may be missing.
	Sockets string
	// Policies are those of plugins that are known from the start, by name.
	Policies map[string]string
	// Timeout is how long a call may take.
	Timeout time.Duration
}

// AddFlags adds the flags. Their defaults are the options as they are.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Sockets, "plugin-sockets", o.Sockets,
		"Directory where plugins over gRPC make their sockets, *.sock. It may be missing, and plugins may come and "+
			"go. Empty for none.")
	flags.StringToStringVar(&o.Policies, "plugin-policy", nil,
		"Who waits while a plugin of --plugin-sockets is away: `NAME=required|ignore,...`. required, the default: "+
			"pods that request its resources, and containers that were assigned its devices or may have been. ignore: "+
			"only containers that were assigned its devices, and pods if it was there before. One that is named here "+
			"is missed from the start.")
	flags.DurationVar(&o.Timeout, "plugin-timeout", o.Timeout,
		"How long a plugin of --plugin-sockets may take to answer: for a container, to allocate for a pod, or to say "+
			"which of up to 64 nodes fit one; in kubecri at most --cridevices-timeout. After three calls in a row "+
			"that took longer it is not called for a while.")
}
