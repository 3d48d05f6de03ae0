package devicepluginmode

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// settling is how long after it was asked for an id may be unknown to pod-resources: the
// kubelet lists it once it has our answer.
const settling = 2 * time.Second

// listing is what pod-resources lists: the pods that have an id, by resource and id. It has no UIDs.
type listing map[string]map[string][]types.NamespacedName

// held is a slot that this node holds. It is Used also by what pod-resources lists.
type held struct {
	claims.Holding
	resource string
	asked    time.Time // when the kubelet last asked for the id; zero: never, or it was refused
}

// resourceOf is the resource by whose plugin a slot is held.
func resourceOf(configuration, instance string, level v1alpha1.Level) string {
	if level == v1alpha1.InstanceLevel {
		return assignment.ResourcePrefix + instance
	}
	return assignment.ResourcePrefix + configuration
}

// decideRelease returns the slots that no pod uses, and after how long to look again; 0
// for not before something happens. requested is how much of each resource the node's pods
// request that have not ended.
//
// A slot is in use when pod-resources lists its id, when a container has it, for a moment
// after the kubelet asked for it, and while pods request more of the resource than is in
// use: of those not in use the ones asked for last stay, as many as are requested. Those
// are of init containers, which pod-resources does not list and which have no container
// while their image is pulled. The kubelet does not ask for their ids again, however long
// that takes.
func decideRelease(all []held, requested map[string]int64, now time.Time) (release []held, recheck time.Duration) {
	open := map[string]int64{} // requested and not seen in use
	for resource, n := range requested {
		open[resource] = n
	}
	var idle []held
	for _, h := range all {
		if h.Used {
			open[h.resource]--
		} else {
			idle = append(idle, h)
		}
	}
	slices.SortFunc(idle, func(a, b held) int { return b.asked.Compare(a.asked) })
	for _, h := range idle {
		age := now.Sub(h.asked)
		again := time.Duration(0)
		switch {
		case age < settling:
			again = settling - age
			open[h.resource]--
		case !h.asked.IsZero() && open[h.resource] > 0: // for as long as a pod is to have it
			again = refreshEvery
			open[h.resource]--
		default:
			release = append(release, h)
			continue
		}
		if recheck == 0 || again < recheck {
			recheck = again
		}
	}
	return release, recheck
}
