package soplugins

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/soplugins/nodeinfo"
	"github.com/kubeslot/kubeslot/types/device"
)

// nodeWithin is how long a plugin that reads the Node's labels waits for them: less than
// containers wait by default (--device-timeout). After that it is asked without them.
const nodeWithin = 3 * time.Second

// NodeLabels returns the labels that the plugins want on the Node: the first that names one has it,
// and those beyond nodeinfo.MaxLabels are left out. settled is false while one that may want some
// was not asked, so that those that are there are to be kept. What is returned is the caller's.
func (p *Plugins) NodeLabels() (labels map[string]string, settled bool) {
	labels, settled = map[string]string{}, true
	for _, plugin := range p.all() {
		plugin.mu.Lock()
		own, lapsed := plugin.labels, plugin.lapsed
		plugin.mu.Unlock()
		if own == nil && !lapsed && p.asksLabels(plugin) {
			settled = false
		}
		for _, key := range slices.Sorted(maps.Keys(own)) {
			if _, has := labels[key]; !has && len(labels) < nodeinfo.MaxLabels {
				labels[key] = own[key]
			}
		}
	}
	return labels, settled
}

// asksLabels reports whether the plugin is asked for labels.
func (p *Plugins) asksLabels(plugin *plugin) bool {
	_, labeler := plugin.device.(device.NodeLabeler)
	return labeler && p.config.Labels != nil
}

// label passes the Node's labels to a plugin, and takes those that it wants there.
func (p *Plugins) label(ctx context.Context, plugin *plugin) *Fault {
	if !p.asksLabels(plugin) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, nodeWithin)
	defer cancel()
	node, known := p.config.Labels(waiting)
	if !known {
		return nil
	}
	node = maps.Clone(node)
	own, fault := call(ctx, plugin.caller, methodNodeLabels, func(d device.Device) (map[string]string, error) {
		wanted, err := d.(device.NodeLabeler).NodeLabels(node)
		if err != nil {
			return nil, err
		}
		own := map[string]string{} // not nil: it was asked
		maps.Copy(own, wanted)
		return own, nodeinfo.CheckLabels(own)
	})
	if fault == nil {
		plugin.mu.Lock()
		plugin.labels = own
		plugin.mu.Unlock()
	}
	return fault
}
