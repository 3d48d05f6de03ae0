package soplugins

import (
	"context"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/device"
)

// ownVariables asks a plugin for its variables; none when it does not say, or does so
// wrongly, which is logged.
func ownVariables(ctx context.Context, p *plugin, of device.Device, config *Config) inject.Edits {
	owner, ok := of.(device.VariableOwner)
	if !ok {
		return inject.Edits{}
	}
	env, err := contain.Do(config.Timeout, func() (map[string]string, error) { return maps.Clone(owner.OwnVariables()), nil }, nil)
	var own inject.Edits
	if err == nil {
		own, err = edits(p.name, given{env: env})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "A device plugin does not say which variables are its own: containers may set any", "plugin", p.name)
		return inject.Edits{}
	}
	return own
}

// Withhold returns the edits that keep the container from asking the runtime for devices
// by variables that belong to plugins: each that no edit of given sets has the value that
// gives none. There are none for a privileged container, which has all devices anyway, and
// none for one that is known not to have such variables.
func (p *Plugins) Withhold(c inject.Container, given []inject.Edits) []inject.Edits {
	if p == nil || c.Privileged {
		return nil
	}
	var all []inject.Edits
	for _, plugin := range p.all() {
		plugin.mu.Lock()
		own := plugin.own
		plugin.mu.Unlock()
		e := inject.Edits{Owner: own.Owner}
		for _, v := range own.Env {
			sets := func(e inject.Edits) bool {
				return slices.ContainsFunc(e.Env, func(other inject.Variable) bool { return other.Name == v.Name && !other.Default })
			}
			if !slices.ContainsFunc(given, sets) && (!c.ImageEnv || slices.Contains(c.Env, v.Name)) {
				e.Env = append(e.Env, v)
			}
		}
		if len(e.Env) > 0 {
			all, given = append(all, e), append(given[:len(given):len(given)], e)
		}
	}
	return all
}
