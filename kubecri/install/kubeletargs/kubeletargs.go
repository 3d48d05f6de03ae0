// Package kubeletargs reads the kubelet's command line and configuration, so that
// kubecri can be started with the kubelet's own arguments (--kubelet-args-compat).
//
// The kubelet's flags are known by name alone (flags.txt): its options package
// would link cAdvisor and much of the kubelet into this binary. What is not a
// flag of ours is passed over: silently when today's kubelet has it, with a
// warning otherwise, and never with an error, because the flags of a kubelet that
// is newer than this binary must not keep it from starting.
package kubeletargs

import (
	_ "embed"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

var (
	//go:embed flags.txt
	flagsText string
	//go:embed past_flags.txt
	pastFlagsText string

	flags     = parse(flagsText)
	pastFlags = parse(pastFlagsText)
)

// parse returns which of the listed flags take a value.
func parse(text string) map[string]bool {
	takesValue := map[string]bool{}
	for line := range strings.Lines(text) {
		if name := strings.TrimSpace(line); !strings.HasPrefix(name, "#") {
			bare, value := strings.CutSuffix(name, "=")
			takesValue[bare] = value
		}
	}
	return takesValue
}

// Flags returns the names of the flags of the kubelet that this was made for.
func Flags() []string { return slices.Collect(maps.Keys(flags)) }

// Ignored are the flags that are passed over, without dashes and values.
type Ignored struct {
	Kubelet []string // flags of today's kubelet
	Past    []string // flags of former kubelets
	Unknown []string // neither: of a newer kubelet, or misspelt
}

// Ignore adds the flags of kubelets to a set, which is to take unknown ones, too, and returns which of the arguments
// are passed over.
func Ignore(set *pflag.FlagSet, args []string) (ignored Ignored) {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	for _, arg := range args {
		text, long := strings.CutPrefix(arg, "--")
		name, _, _ := strings.Cut(text, "=")
		name = strings.ReplaceAll(name, "_", "-") // both spellings are the kubelet's
		if !long || name == "help" || set.Lookup(name) != nil {
			continue // a word, or ours; cobra adds help later
		}
		kind := &ignored.Unknown
		if _, is := flags[name]; is {
			kind = &ignored.Kubelet
		} else if _, was := pastFlags[name]; was {
			kind = &ignored.Past
		}
		*kind = append(*kind, name)
	}
	addTo(set)
	return ignored
}

// Arguments are what a kubelet's command line says of the things that concern
// kubecri; "" for what it does not say.
type Arguments struct {
	Config, ConfigDir string
	RuntimeEndpoint   string
	HostnameOverride  string
	Kubeconfig        string
}

// ParseArguments reads a kubelet's command line without the program's name.
func ParseArguments(args []string) (a Arguments) {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	set.ParseErrorsAllowlist.UnknownFlags = true
	for name, value := range map[string]*string{
		"config": &a.Config, "config-dir": &a.ConfigDir, "container-runtime-endpoint": &a.RuntimeEndpoint,
		"hostname-override": &a.HostnameOverride, "kubeconfig": &a.Kubeconfig,
	} {
		set.StringVar(value, name, "", "")
	}
	addTo(set)
	_ = set.Parse(args) // what it cannot read keeps no kubelet from running
	return a
}

// addTo adds the flags of kubelets that a set does not have, without a meaning.
func addTo(set *pflag.FlagSet) {
	for _, list := range []map[string]bool{flags, pastFlags} {
		for name, takesValue := range list {
			if set.Lookup(name) != nil {
				continue
			}
			set.String(name, "", "")
			if !takesValue {
				set.Lookup(name).NoOptDefVal = "true"
			}
		}
	}
}
