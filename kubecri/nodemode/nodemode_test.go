package nodemode

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPlan(t *testing.T) {
	now := time.Unix(100_000, 0)
	labelled := map[string]string{"kubeslot.io/mode": "device-plugin", "other": "x"}
	for _, test := range []struct {
		name        string
		labels      map[string]string
		annotations map[string]string
		amounts     map[string]string // allocatable, and the same capacity unless "capacity/allocatable"
		chooses     bool
		nri         string
		pod         string
		conditions  []string
		served      map[string]Amount
		unknown     bool
		last        time.Duration // ago
		want        string
	}{
		{name: "another mode", labels: map[string]string{"other": "x"}},
		{name: "another mode, after device plugins", labels: labelled, amounts: map[string]string{"akri.sh/cam": "0"},
			want: `{"metadata":{"labels":{"kubeslot.io/mode":null}}}`},
		{name: "NRI mode", nri: "kubecri", want: `{"metadata":{"annotations":{"kubeslot.io/nri-plugin":"kubecri"}}}`},
		{name: "NRI mode in a pod", nri: "kubecri", pod: "kubeslot-system",
			want: `{"metadata":{"annotations":{"kubeslot.io/kubecri-namespace":"kubeslot-system","kubeslot.io/nri-plugin":"kubecri"}}}`},
		{name: "on the host, after a pod", nri: "kubecri", annotations: map[string]string{"kubeslot.io/nri-plugin": "kubecri", "kubeslot.io/kubecri-namespace": "x"},
			want: `{"metadata":{"annotations":{"kubeslot.io/kubecri-namespace":null}}}`},
		{name: "NRI mode, said", nri: "kubecri", annotations: map[string]string{"kubeslot.io/nri-plugin": "kubecri", "mine": "x"}},
		{name: "NRI mode under another name", nri: "ours", annotations: map[string]string{"kubeslot.io/nri-plugin": "kubecri"}, want: `{"metadata":{"annotations":{"kubeslot.io/nri-plugin":"ours"}}}`},
		{name: "after NRI mode", annotations: map[string]string{"kubeslot.io/nri-plugin": "kubecri"}, want: `{"metadata":{"annotations":{"kubeslot.io/nri-plugin":null}}}`},
		{name: "after NRI mode, with what it said of the runtime", conditions: []string{"Ready", "kubeslot.io/StartsWithoutKubecri", "kubeslot.io/Other"},
			want: `{"status":{"conditions":[{"$patch":"delete","type":"kubeslot.io/StartsWithoutKubecri"}]}}`},
		{name: "NRI mode, with what it says of the runtime", nri: "kubecri", annotations: map[string]string{"kubeslot.io/nri-plugin": "kubecri"}, conditions: []string{"kubeslot.io/StartsWithoutKubecri"}},
		{name: "device plugins", chooses: true, unknown: true,
			want: `{"metadata":{"labels":{"kubeslot.io/mode":"device-plugin"}}}`},
		{name: "nothing to do", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "2", "cpu": "4", "nvidia.com/gpu": "1"}, served: map[string]Amount{"akri.sh/cam": {}}},
		{name: "what the advertiser left", chooses: true, labels: labelled, unknown: true,
			annotations: map[string]string{"KubeDevice/DeviceInfo": "{}", "kubeslot.io/plugin-resources": "example.com/widget,gone.example/x", "mine": "x"},
			amounts:     map[string]string{"example.com/widget": "3", "akri.sh/cam": "2"},
			want: `{"metadata":{"annotations":{"KubeDevice/DeviceInfo":null,"kubeslot.io/plugin-resources":null}},` +
				`"status":{"capacity":{"example.com/widget":null},"allocatable":{"example.com/widget":null}}}`},
		{name: "labels that the advertiser left", chooses: true, unknown: true,
			labels: map[string]string{"kubeslot.io/mode": "device-plugin", "nvidia.com/gpu.count": "8",
				"nvidia.com/mine": "x"},
			annotations: map[string]string{"kubeslot.io/plugin-labels": "nvidia.com/gone,nvidia.com/gpu.count"},
			want:        `{"metadata":{"labels":{"nvidia.com/gpu.count":null},"annotations":{"kubeslot.io/plugin-labels":null}}}`},
		{name: "an amount that nobody serves", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "2"},
			want: `{"status":{"capacity":{"akri.sh/cam":null},"allocatable":{"akri.sh/cam":null}}}`},
		{name: "a zero that the kubelet writes still", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "0"}, last: time.Minute},
		{name: "a zero that it has forgotten", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "0"}, last: forgotten,
			want: `{"status":{"capacity":{"akri.sh/cam":null},"allocatable":{"akri.sh/cam":null}}}`},
		{name: "a zero of what is served", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "0"}, served: map[string]Amount{"akri.sh/cam": {}}, last: time.Hour},
		{name: "as the kubelet was told", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "4/2"}, served: map[string]Amount{"akri.sh/cam": {true, 4, 2}}},
		{name: "slots taken elsewhere, which the kubelet writes later", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "4", "akri.sh/cam-000001": "2"},
			served: map[string]Amount{"akri.sh/cam": {true, 4, 2}, "akri.sh/cam-000001": {true, 2, 2}}, want: `{"status":{"allocatable":{"akri.sh/cam":"2"}}}`},
		{name: "slots given back", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "4/0"}, served: map[string]Amount{"akri.sh/cam": {true, 4, 4}},
			want: `{"status":{"allocatable":{"akri.sh/cam":"4"}}}`},
		{name: "a plugin that the kubelet has just been told of", chooses: true, labels: labelled, served: map[string]Amount{"akri.sh/cam": {true, 1, 1}},
			want: `{"status":{"capacity":{"akri.sh/cam":"1"},"allocatable":{"akri.sh/cam":"1"}}}`},
		{name: "the kubelet does not listen", chooses: true, labels: labelled, amounts: map[string]string{"akri.sh/cam": "4/0"}, served: map[string]Amount{"akri.sh/cam": {false, 4, 4}}},
		{name: "not all is known yet", chooses: true, labels: labelled, unknown: true, amounts: map[string]string{"akri.sh/cam": "4/0"}, served: map[string]Amount{"akri.sh/cam": {true, 4, 4}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: test.labels, Annotations: test.annotations},
				Status: corev1.NodeStatus{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}}}
			for _, c := range test.conditions {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(c), Status: corev1.ConditionTrue})
			}
			last := map[string]time.Time{"akri.sh/gone": now}
			for name, n := range test.amounts {
				all, healthy, two := strings.Cut(n, "/")
				if !two {
					healthy = all
				}
				node.Status.Capacity[corev1.ResourceName(name)] = resource.MustParse(all)
				node.Status.Allocatable[corev1.ResourceName(name)] = resource.MustParse(healthy)
				if test.last > 0 {
					last[name] = now.Add(-test.last)
				}
			}
			p := plan(view{node: node, nriPlugin: test.nri, podNamespace: test.pod, chooses: test.chooses,
				served: test.served, known: !test.unknown, now: now, last: last})
			got, err := json.Marshal(p)
			if p.IsZero() {
				got = nil
			}
			if err != nil || string(got) != test.want {
				t.Errorf("patch %s, %v, want %s", got, err, test.want)
			}
			if _, remembered := last["akri.sh/gone"]; remembered && test.chooses && !test.unknown {
				t.Error("a resource that the node has no longer is remembered")
			}
		})
	}
}
