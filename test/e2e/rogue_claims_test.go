package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A node that claims the slot of another node's own device again and again keeps nobody
// from it: the pod runs while the loop does, the controller deletes each claim at once and
// says so of the Node, and the pod's claim is made when the loop has ended.
func TestRogueNodeClaimsForEver(t *testing.T) {
	testAll(t, "floods the API server")
	r := newRig(t)
	r.debugEchoUnchecked("anvil", "debugEcho", `{"descriptions": ["anvil"], "shared": false}`)
	local := r.awaitDevices("anvil", 2)
	r.awaitAdvertised("anvil", 1, local)
	theirs := local[slices.IndexFunc(local, func(d device) bool { return d.nodes[0] == nodeB })].name
	name, err := slot.Parse(theirs + "-0")
	r.check(err)
	thief := r.newRogueWith(r.identity(podToken)) // the credential that is easiest to steal
	claim := v1alpha1.NewSlotClaim(name, v1alpha1.SlotClaimSpec{NodeName: nodeA, Level: v1alpha1.ConfigurationLevel, Holder: "rogue"}, thief.owner)

	ctx, stop := context.WithCancel(r.ctx)
	var loops sync.WaitGroup
	end := sync.OnceFunc(func() { stop(); loops.Wait() })
	t.Cleanup(end)
	for range 4 {
		own := claim.DeepCopy() // the client writes into what it encodes
		loops.Go(func() {
			for ctx.Err() == nil {
				_, err := thief.akri.KubeslotV1alpha1().SlotClaims().Create(ctx, own, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsTooManyRequests(err) && ctx.Err() == nil {
					t.Errorf("a claim: %v", err)
					return
				}
			}
		})
	}
	r.await("the controller to say of node-a that its claims never counted", func() (bool, string) {
		list, err := kube.EventsV1().Events("").List(r.ctx, metav1.ListOptions{FieldSelector: "reason=SlotClaimNeverCounted"})
		r.check(err)
		for _, e := range list.Items {
			if e.Regarding.Kind == "Node" && e.Regarding.Name == nodeA && strings.Contains(e.Note, theirs+"-0") {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d Events", len(list.Items))
	})
	r.create(newPod("smith", nodeB, map[string]int64{"anvil": 1}))
	if node := r.awaitRunning("smith").Spec.NodeName; node != nodeB {
		t.Errorf("the pod runs on %s", node)
	}
	end()
	r.awaitClaims("anvil", map[string]holding{theirs + "-0": heldBy(r.pod("smith"))})
	r.agree("smith", "anvil", 1)
}
