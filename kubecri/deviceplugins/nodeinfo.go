package deviceplugins

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// maxBytes bounds the names in what one plugin says of the node, of the 256 KiB
// that all its annotations may take. Eight GPUs with two levels above them take 4.
const maxBytes = 64 << 10

// NodeInfo returns what the plugins say of the node, as far as they have: in the
// order of the plugins, the first that names a resource has it. settled is false
// while one is still being started, so that what the node said of it before is to
// be kept. What is returned is the caller's.
func (p *Plugins) NodeInfo() (info *types.NodeInfo, settled bool) {
	info, settled = types.NewNodeInfoWithName(p.config.Node), true
	for _, plugin := range p.plugins {
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
	for _, plugin := range p.plugins {
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
	for _, earlier := range p.plugins {
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
					return fmt.Errorf("%w: it names %q, as device plugin %q does: remove one of the two", errInvalid, name, earlier.name)
				}
			}
		}
	}
	return nil
}

// said is what the plugin said of the node last; nil for nothing yet.
func (p *plugin) reported() *types.NodeInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.data
}

// checked returns what a plugin said, if it may be written to the node: anything
// else would keep the node's slots from being advertised as well.
func checked(info *types.NodeInfo) (*types.NodeInfo, error) {
	info.Used = types.ResourceList{} // the scheduler's
	bytes := 0
	for name := range info.Scorer {
		bytes += len(name)
	}
	for _, list := range []types.ResourceList{info.Capacity, info.Allocatable, info.KubeCap, info.KubeAlloc} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			bytes += len(name)
			if err := checkResource(name, list[name]); err != nil {
				return nil, err
			}
		}
	}
	if bytes > maxBytes {
		return nil, fmt.Errorf("%w: the names of the node's resources take %d bytes, of %d that it may have", errInvalid, bytes, maxBytes)
	}
	for _, list := range []types.ResourceList{info.KubeCap, info.KubeAlloc} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !extended(string(name)) {
				return nil, fmt.Errorf("%w: its KubeCap or KubeAlloc has %q, which is not the name of an extended resource, such as example.com/widget", errInvalid, name)
			}
		}
	}
	return info, nil
}

func checkResource(name types.ResourceName, n int64) error {
	switch {
	case name == "" || !utf8.ValidString(string(name)):
		return fmt.Errorf("%w: %q is not a name of a resource", errInvalid, name)
	case strings.HasPrefix(string(name), assignment.ResourcePrefix):
		return fmt.Errorf("%w: it says that the node has %q: slots come from Instances alone", errInvalid, name)
	case n < 0:
		return fmt.Errorf("%w: it says that the node has %d of %q", errInvalid, n, name)
	}
	return nil
}

// extended reports whether a resource is one that nodes may add, by the API
// server's rule (IsExtendedResourceName).
func extended(name string) bool {
	const quota = "requests." // the name has to be good with it, and must not begin so
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, quota) &&
		len(validation.IsQualifiedName(quota+name)) == 0
}
