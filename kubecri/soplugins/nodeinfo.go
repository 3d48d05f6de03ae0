package soplugins

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
)

// NodeInfo returns what the plugins say of the node, as far as they have: in the
// order of the plugins, the first that names a resource has it. settled is false
// while one is still being started, or may still come, so that what the node said of it before
// is to be kept. What is returned is the caller's.
func (p *Plugins) NodeInfo() (info *types.NodeInfo, settled bool) {
	info = types.NewNodeInfoWithName(p.config.Node)
	settled = p.config.known == nil || time.Since(p.made) >= settle
	for _, plugin := range p.all() {
		plugin.mu.Lock()
		data, lapsed := plugin.data, plugin.lapsed
		plugin.mu.Unlock()
		switch {
		case data != nil:
			merge(info, data)
		case !lapsed:
			settled = false
		}
	}
	return info, settled
}

// Gives reports whether a resource of node.status is one that a plugin, as far as it
// has told, gives out.
func (p *Plugins) Gives(name types.ResourceName) bool {
	if p == nil {
		return false
	}
	for _, plugin := range p.all() {
		data := plugin.reported()
		if data == nil {
			continue
		}
		_, capacity := data.KubeCap[name]
		_, allocatable := data.KubeAlloc[name]
		if capacity || allocatable {
			return true
		}
	}
	return false
}

// merge adds what info does not have yet.
func merge(info, data *types.NodeInfo) {
	add(info.Capacity, data.Capacity)
	add(info.Allocatable, data.Allocatable)
	add(info.Scorer, data.Scorer)
	add(info.KubeCap, data.KubeCap)
	add(info.KubeAlloc, data.KubeAlloc)
}

func add[M ~map[K]V, K comparable, V any](to, from M) {
	for name, value := range from {
		if _, has := to[name]; !has {
			to[name] = value
		}
	}
}

// conflict says what of the data an earlier plugin, which has it, names too.
func (p *Plugins) conflict(plugin *plugin, data *types.NodeInfo) error {
	for _, earlier := range p.all() {
		if earlier == plugin {
			break
		}
		has := earlier.reported()
		if has == nil {
			continue
		}
		for _, lists := range [][2]types.ResourceList{{has.Capacity, data.Capacity}, {has.Allocatable, data.Allocatable},
			{has.KubeCap, data.KubeCap}, {has.KubeAlloc, data.KubeAlloc}} {
			for _, name := range slices.Sorted(maps.Keys(lists[1])) {
				if _, both := lists[0][name]; both {
					return fmt.Errorf("%w: it names %q, as device plugin %q does: remove one of the two",
						contain.ErrInvalid, name, earlier.name)
				}
			}
		}
	}
	return nil
}

// reported is what the plugin said of the node last; nil for nothing yet.
func (p *plugin) reported() *types.NodeInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.data
}
