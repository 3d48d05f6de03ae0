package soplugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/soplugins/nodeinfo"
	"github.com/kubeslot/kubeslot/types/device"
)

// nodeWithin is how long a plugin that reads the Node's labels waits for them: less than
// containers wait by default (--device-timeout). After that it is asked without them.
const nodeWithin = 3 * time.Second

// NodeLabels returns the labels that the plugins want on the Node. settled is false while one that
// has some has not said which, so that those that are there are to be kept. What is returned is the
// caller's.
func (p *Plugins) NodeLabels() (labels map[string]string, settled bool) {
	labels, settled = map[string]string{}, true
	for _, plugin := range p.all() {
		plugin.mu.Lock()
		own, lapsed := plugin.labels, plugin.lapsed
		plugin.mu.Unlock()
		if own == nil && !lapsed && p.asksLabels(plugin) {
			settled = false
		}
		maps.Copy(labels, own)
	}
	return labels, settled
}

// asksLabels reports whether the plugin is asked for labels.
func (p *Plugins) asksLabels(plugin *plugin) bool {
	_, labeler := plugin.device.(device.NodeLabeler)
	return labeler && p.config.Labels != nil
}

// needsLabels reports whether the plugin was not asked for labels, because the Node was not known.
func (p *Plugins) needsLabels(plugin *plugin) bool { // of drive, which writes them
	return plugin.labels == nil && p.asksLabels(plugin)
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
		own := map[string]string{} // not nil: it has said
		maps.Copy(own, wanted)
		return own, nodeinfo.CheckLabels(own)
	})
	if fault != nil {
		return fault
	}
	if err := p.labelConflict(plugin, own); err != nil {
		return plugin.fault(methodNodeLabels, err)
	}
	plugin.mu.Lock()
	defer plugin.mu.Unlock()
	plugin.labels = own
	return nil
}

// labelConflict says what is wrong with a plugin's labels beside those of the others.
func (p *Plugins) labelConflict(plugin *plugin, own map[string]string) error {
	count := len(own)
	for _, other := range p.all() {
		if other == plugin {
			continue
		}
		other.mu.Lock()
		labels := other.labels
		other.mu.Unlock()
		for _, key := range slices.Sorted(maps.Keys(own)) {
			if _, both := labels[key]; both {
				return fmt.Errorf("%w: it wants the label %q on the Node, as device plugin %q does: remove one of the two",
					nodeinfo.ErrInvalid, key, other.name)
			}
		}
		if count += len(labels); count > nodeinfo.MaxLabels {
			return fmt.Errorf("%w: with its labels and those of device plugin %q the Node would have %d, of %d that there may be",
				nodeinfo.ErrInvalid, other.name, count, nodeinfo.MaxLabels)
		}
	}
	return nil
}
