package inventory

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The scheduler counts the claims that the controller counts: else one would give a slot of
// which the other keeps the claim.
func TestTheSchedulersLedgerAgrees(t *testing.T) {
	for name, discovery := range map[string]bool{"each node for itself": false, "some nodes for all": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { compareWithLedger(t, discovery) })
		})
	}
}

// namesake is the id of a shared device whose Instance has the name of the first node's own device
// "two".
var namesake = "two" + nodeNames[0]

func compareWithLedger(t *rapid.T, discovery bool) {
	v, l := New(), ledger.New()
	c := configuration("n1", "cam", func(c *akriv0.Configuration) {
		c.Spec.Capacity = rapid.Int32Range(1, 2).Draw(t, "capacity")
		c.Spec.InstanceNameDigits = rapid.SampledFrom([]int32{6, 6, 12}).Draw(t, "digits")
		if discovery {
			c.Spec.Discovery = &akriv0.Discovery{NodeSelector: drawLabels(t)}
		}
	})
	if rapid.IntRange(0, 9).Draw(t, "without Configuration") > 0 {
		v.SetConfiguration(c)
		l.SetConfiguration(c)
	}
	hash := func(id string, shared bool, node string) string {
		return slot.InstanceHash(id, shared, node, c.Spec.HashDigits())
	}
	text := ""
	for _, node := range nodeNames {
		labels := drawLabels(t)
		if rapid.IntRange(0, 3).Draw(t, "plugins") == 0 {
			labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin, "net": "1"}
		}
		v.SetNode(node, Node{Labels: labels})
		l.SetNode(node, labels)
		s := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node}}
		for _, id := range []string{"one", "two", namesake} {
			d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: rapid.SampledFrom([]string{"n1", "n1", "n1", "n2"}).Draw(t, "namespace"), Name: "cam"},
				ID: id, Shared: id != "two"}
			d.Hash = hash(id, d.Shared, node)
			switch state := rapid.SampledFrom([]string{"", "", "gone", "gone", "unlisted", "unschedulable"}).Draw(t, "state"); state {
			case "unlisted":
				continue
			case "gone":
				d.Unschedulable, d.Gone = true, true
			case "unschedulable":
				d.Unschedulable = true
			}
			s.Spec.Devices = append(s.Spec.Devices, d)
		}
		text += fmt.Sprintln(node, labels, s.Spec.Devices)
		v.SetSlice(s)
		l.SetSlice(s)
	}
	for _, id := range []string{"one", "two"} {
		for index := range 3 {
			by := rapid.SampledFrom(nodeNames).Draw(t, "by")
			of := rapid.SampledFrom(nodeNames).Draw(t, "of")
			claim := &v1alpha1.SlotClaim{Spec: v1alpha1.SlotClaimSpec{NodeName: by, Holder: "p"}}
			claim.Name = slot.Name{Instance: slot.InstanceName("cam", hash(id, id == "one", of)), Index: index}.String()
			if rapid.Bool().Draw(t, "of a pod") {
				claim.Spec.Pod = &v1alpha1.PodReference{Namespace: "ns", Name: "p", UID: "p"}
			}
			before, _ := l.Ignored()
			l.SetClaim(claim)
			after, _ := l.Ignored()
			if err := v.DoesNotCount(claim); (err == nil) != (after == before) {
				t.Fatalf("the claim of %s by %s counts for the scheduler: %v; for the controller: %v\n%+v\n%s", claim.Name, by, after == before, err, c.Spec, text)
			}
			l.DeleteClaim(claim.Name)
		}
	}
}
