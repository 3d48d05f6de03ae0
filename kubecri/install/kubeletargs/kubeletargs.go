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

// Ignored are the flags that were passed over, without dashes and values.
type Ignored struct {
	Kubelet []string // flags of today's kubelet
	Past    []string // flags of former kubelets
	Unknown []string // neither: of a newer kubelet, or misspelt
}

// Split takes out of args the flags that ours does not know; ours says of a name
// without dashes whether it is known and whether its value may be the next
// argument. The value of an unknown flag is what follows "=", or the next
// argument if that does not begin with a dash; a flag that is known to take no
// value has none. Order is kept, and what follows "--" stays as it is.
func Split(args []string, ours func(name string) (known, takesValue bool)) (kept []string, ignored Ignored) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(kept, args[i:]...), ignored
		}
		text, long := strings.CutPrefix(arg, "--")
		if !long { // a word, or short flags, of which the kubelet has only ours
			kept = append(kept, arg)
			continue
		}
		name, _, hasValue := strings.Cut(text, "=")
		name = strings.ReplaceAll(name, "_", "-") // both spellings are the kubelet's
		next := !hasValue && i+1 < len(args)
		if known, takesValue := ours(name); known {
			kept = append(kept, arg)
			if next && takesValue {
				i++
				kept = append(kept, args[i])
			}
			continue
		}
		if ignored.add(name) && next && !strings.HasPrefix(args[i+1], "-") {
			i++
		}
	}
	return kept, ignored
}

// add files a flag and reports whether it may take a value.
func (ig *Ignored) add(name string) (mayTakeValue bool) {
	if takes, ok := flags[name]; ok {
		ig.Kubelet = append(ig.Kubelet, name)
		return takes
	}
	if takes, ok := pastFlags[name]; ok {
		ig.Past = append(ig.Past, name)
		return takes
	}
	ig.Unknown = append(ig.Unknown, name)
	return true
}
