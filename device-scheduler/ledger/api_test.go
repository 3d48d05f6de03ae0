package ledger

import (
	"maps"
	"math/rand/v2"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// api is what a new scheduler would read.
type api struct {
	configurations map[string]*akriv0.Configuration // by namespace/name
	slices         map[string]*v1alpha1.DeviceSlice
	claims         map[string]*v1alpha1.SlotClaim
	nodes          map[string]map[string]string // labels
	pods           map[string]scheduled         // that are bound, by UID
	ending         map[string]bool
	dra            map[string][]string // Instances, by the UIDs of ResourceSlices and ResourceClaims
}

type scheduled struct {
	pod  Pod
	node string
	a    Assignment
}

func newAPI() api {
	return api{configurations: map[string]*akriv0.Configuration{}, slices: map[string]*v1alpha1.DeviceSlice{}, claims: map[string]*v1alpha1.SlotClaim{},
		nodes: map[string]map[string]string{}, pods: map[string]scheduled{}, ending: map[string]bool{},
		dra: map[string][]string{}}
}

// ledger makes one of what the API has, in any order.
func (api *api) ledger(random *rand.Rand) *Ledger {
	l := New()
	steps := slices.Concat(
		changes(api.pods, func(uid string, p scheduled) {
			l.Observe(p.pod, p.node, p.a)
			if api.ending[uid] {
				l.SetTerminating(uid)
			}
		}),
		changes(api.slices, func(_ string, s *v1alpha1.DeviceSlice) { l.SetSlice(s) }),
		changes(api.configurations, func(_ string, c *akriv0.Configuration) { l.SetConfiguration(c) }),
		changes(api.claims, func(_ string, c *v1alpha1.SlotClaim) { l.SetClaim(c) }),
		changes(api.dra, func(uid string, instances []string) { l.SetDRA(uid, instances) }),
		changes(api.nodes, func(node string, labels map[string]string) { l.SetNode(node, labels) }))
	for _, i := range random.Perm(len(steps)) {
		steps[i]()
	}
	return l
}

// changes are those that show each of the objects, by name.
func changes[V any](objects map[string]V, show func(string, V)) (all []func()) {
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		all = append(all, func() { show(name, objects[name]) })
	}
	return all
}
