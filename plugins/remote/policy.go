package remote

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// Policy says who waits while a plugin is away.
type Policy string

const (
	// Required is the default. Pods that request the plugin's resources wait, and containers that
	// were or may have been assigned its devices are refused.
	Required Policy = "required"
	// Ignore refuses only containers that were assigned the plugin's devices, or, before it has said
	// which these are, what no other plugin names.
	Ignore Policy = "ignore"
)

// Policies are those of plugins by name. It is a pflag.Value.
type Policies map[string]Policy

// Set takes NAME=required or NAME=ignore, and more of them after commas, and adds them.
func (p *Policies) Set(text string) error {
	for each := range strings.SplitSeq(text, ",") {
		name, policy, _ := strings.Cut(strings.TrimSpace(each), "=")
		if err := registration.CheckName(name); err != nil {
			return err
		}
		if policy := Policy(policy); policy != Required && policy != Ignore {
			return fmt.Errorf("plugin %q has the policy %q, which is neither %q nor %q", name, policy, Required, Ignore)
		}
		if *p == nil {
			*p = Policies{}
		}
		(*p)[name] = Policy(policy)
	}
	return nil
}

// String returns what Set takes, in the order of the names.
func (p *Policies) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*p)) {
		all = append(all, name+"="+string((*p)[name]))
	}
	return strings.Join(all, ",")
}

// Type is shown in a flag's help.
func (p *Policies) Type() string { return "NAME=required|ignore,..." }
