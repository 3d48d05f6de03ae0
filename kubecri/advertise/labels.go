package advertise

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// planLabels is a nodewriter.Plan: it compares the Node's labels with those of the device plugins.
func (a *Advertiser) planLabels(ctx context.Context, node *corev1.Node) (nodewriter.Patch, time.Duration, error) {
	want, settled := a.config.Labels()
	patch, foreign := labelPatch(node, want, settled)
	for _, key := range foreign {
		if !slices.Contains(a.foreignLabels, key) {
			klog.FromContext(ctx).Error(nil, "A device plugin's label is not written: the Node has it from somebody "+
				"else. Remove that one, or have the plugin use other names", "label", key)
		}
	}
	a.foreignLabels = foreign
	return patch, 0, nil
}

// labelPatch returns what gives the Node the labels, and those that it has from somebody else, sorted.
// Labels of kubecri's that are not wanted any more go, unless others may want them yet. Pure.
func labelPatch(node *corev1.Node, want map[string]string, settled bool) (p nodewriter.Patch, foreign []string) {
	ours := map[string]bool{}
	for key := range strings.SplitSeq(node.Annotations[v1alpha1.PluginLabelsAnnotation], ",") {
		ours[key] = true
	}
	labels, list := map[string]*string{}, map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value := want[key]
		has, is := node.Labels[key]
		if is && !ours[key] {
			foreign = append(foreign, key)
			continue
		}
		if list[key] = true; !is || has != value {
			labels[key] = &value
		}
	}
	for key := range ours {
		if _, is := node.Labels[key]; !is || list[key] {
			continue
		}
		if settled {
			labels[key] = nil
		} else {
			list[key] = true
		}
	}
	p.Metadata.Labels = labels
	p.Metadata.Annotations = nodewriter.Say(node.Annotations, map[string]string{
		v1alpha1.PluginLabelsAnnotation: strings.Join(slices.Sorted(maps.Keys(list)), ",")})
	return p, foreign
}
