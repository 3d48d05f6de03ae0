package command

import (
	"fmt"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// fiftyThousand is a cluster of 5,000 devices of 10 slots on 500 nodes; 40,000 slots are
// held, each by a pod of its own.
func fiftyThousand() view.Objects {
	o := view.Objects{Configurations: []akriv0.Configuration{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "c", CreationTimestamp: long},
		Spec: akriv0.ConfigurationSpec{Capacity: 10}}}}
	for i := range 5_000 {
		node := fmt.Sprintf("node-%03d", i%500)
		in := akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: slot.InstanceName("cam", slot.InstanceHash(fmt.Sprint(i), false, node, slot.LongHash))},
			Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 10, Nodes: []string{node}}}
		o.Instances = append(o.Instances, in)
		for k := range 8 {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p-%d-%d", i, k), CreationTimestamp: long},
				Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			pod.UID = types.UID(pod.Name)
			o.Pods = append(o.Pods, pod)
			o.Claims = append(o.Claims, v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: slot.Name{Instance: in.Name, Index: k}.String(), CreationTimestamp: long},
				Spec: v1alpha1.SlotClaimSpec{NodeName: node, Container: "main", Level: v1alpha1.ConfigurationLevel, Holder: pod.Name,
					Pod: &v1alpha1.PodReference{Namespace: "default", Name: pod.Name, UID: pod.UID}}})
		}
	}
	return o
}

// BenchmarkTop is what top takes with 50,000 slots on the page: until a change is on the
// screen, for a key, and for the tick of each second.
func BenchmarkTop(b *testing.B) {
	o := fiftyThousand()
	m := newTop(func() time.Time { return storyNow }, func(string, map[string]string) bool { return true }, false)
	m.feed = stillFeed{}
	m.Update(tea.WindowSizeMsg{Width: 160, Height: 50})
	m.Update(tea.KeyPressMsg{Code: '3', Text: "3"})
	m.Update(changed{view: view.New(o)})
	if len(m.rows) != 50_000 {
		b.Fatalf("%d rows, want 50000", len(m.rows))
	}
	for name, msg := range map[string]func() tea.Msg{
		"change": func() tea.Msg { return changed{view: view.New(o)} },
		"key":    func() tea.Msg { return tea.KeyPressMsg{Code: 'j', Text: "j"} },
		"tick":   func() tea.Msg { return tick{} },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Update(msg())
				m.screen()
			}
		})
	}
}
