package advertise

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func resources(counts map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, n := range counts {
		list[corev1.ResourceName(name)] = resource.MustParse(n)
	}
	return list
}

// node says of its slots what capacity and allocatable are, and is annotated.
func node(capacity, allocatable map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{assignment.Annotation: `{"name":"a"}`}},
		Status:     corev1.NodeStatus{Capacity: resources(capacity), Allocatable: resources(allocatable)},
	}
}

// running returns a pod of node a that the scheduler bound and its kubelet admitted.
func running(name string, requests ...map[string]string) *corev1.Pod {
	now := metav1.Unix(1, 0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cameras", Name: name, UID: apitypes.UID(name),
			Annotations: map[string]string{assignment.HolderAnnotation: name}},
		Spec:   corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now},
	}
	for _, r := range requests {
		pod.Spec.Containers = append(pod.Spec.Containers, container(r))
	}
	return pod
}

func container(requests map[string]string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: resources(requests)}}
}

func with[T any](object *T, changes ...func(*T)) *T {
	for _, change := range changes {
		change(object)
	}
	return object
}

type counts = map[string]string

func TestPlan(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	two := counts{"akri.sh/cam": "2", "cpu": "4"}
	cam := map[string]int64{"cam": 2}
	gpus := counts{"nvidia.com/gpu": "2"}
	list := func(names string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations[v1alpha1.PluginResourcesAnnotation] = names }
	}
	for name, tc := range map[string]struct {
		node       *corev1.Node
		info       types.NodeInfo
		unsettled  bool
		slots      map[string]int64
		pods       []*corev1.Pod
		want       string
		kept       []held
		foreign    []types.ResourceName
		notWritten bool
	}{
		"nothing to say": {node: node(nil, nil)},
		"a new node": {
			node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			want: `{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"{\"name\":\"a\"}"}}}`,
		},
		"slots of each Configuration": {
			node:  node(counts{"cpu": "4"}, counts{"cpu": "3"}),
			slots: map[string]int64{"cam": 5, "gpu": 1, "empty": 0},
			want:  `{"status":{"capacity":{"akri.sh/cam":"5","akri.sh/gpu":"1"},"allocatable":{"akri.sh/cam":"5","akri.sh/gpu":"1"}}}`,
		},
		"all said":             {node: node(two, two), slots: cam},
		"in another notation":  {node: node(counts{"akri.sh/cam": "2000m"}, two), slots: cam},
		"allocatable is wiped": {node: node(two, counts{"cpu": "4"}), slots: cam, want: `{"status":{"allocatable":{"akri.sh/cam":"2"}}}`},
		"only what differs": {
			node:  node(counts{"akri.sh/cam": "1"}, two),
			slots: cam,
			want:  `{"status":{"capacity":{"akri.sh/cam":"2"}}}`,
		},
		"what is gone goes, and only of ours": {
			node: node(counts{"akri.sh/cam": "2", "nvidia.com/gpu": "1", "akri.shop/x": "1"}, counts{"akri.sh/old": "0", "nvidia.com/gpu": "1"}),
			want: `{"status":{"capacity":{"akri.sh/cam":null},"allocatable":{"akri.sh/old":null}}}`,
		},
		"a Configuration that is named as an Instance": {
			node:  node(counts{"akri.sh/cam": "2", "akri.sh/cam-8120fe": "3"}, counts{"akri.sh/cam": "2"}),
			slots: map[string]int64{"cam": 2, "cam-8120fe": 7},
			want:  `{"status":{"capacity":{"akri.sh/cam-8120fe":"7"},"allocatable":{"akri.sh/cam-8120fe":"7"}}}`,
		},
		// A kubelet ignores what its node does not have, and kills what has too little.
		"an Instance's slots, of a former kubecri, go whole while a pod holds one": {
			node:  node(counts{"akri.sh/cam": "2", "akri.sh/cam-8120fe": "2", "akri.sh/old-0123456789ab": "0"}, counts{"akri.sh/cam": "2", "akri.sh/cam-8120fe": "2"}),
			slots: cam,
			pods:  []*corev1.Pod{running("p", counts{"akri.sh/cam-8120fe": "1"})},
			want:  `{"status":{"capacity":{"akri.sh/cam-8120fe":null,"akri.sh/old-0123456789ab":null},"allocatable":{"akri.sh/cam-8120fe":null}}}`,
		},

		"not below what pods hold": {
			node:  node(counts{"akri.sh/cam": "6"}, counts{"akri.sh/cam": "6"}),
			slots: cam,
			pods:  []*corev1.Pod{running("p", counts{"akri.sh/cam": "2"}, counts{"akri.sh/cam": "1"}), running("q", counts{"akri.sh/cam": "1", "cpu": "1"})},
			want:  `{"status":{"capacity":{"akri.sh/cam":"4"},"allocatable":{"akri.sh/cam":"4"}}}`,
			kept:  []held{{"akri.sh/cam", 2, 4}},
		},
		"held, and gone altogether": {
			node: node(counts{"akri.sh/cam": "2", "akri.sh/old-name": "2"}, counts{"akri.sh/cam": "2", "akri.sh/old-name": "2"}),
			pods: []*corev1.Pod{running("p", counts{"akri.sh/old-name": "1"})},
			want: `{"status":{"capacity":{"akri.sh/cam":null,"akri.sh/old-name":"1"},"allocatable":{"akri.sh/cam":null,"akri.sh/old-name":"1"}}}`,
			kept: []held{{"akri.sh/old-name", 0, 1}},
		},
		"zeroed by a kubelet": {
			node: node(counts{"akri.sh/cam": "0"}, counts{"akri.sh/cam": "0"}),
			pods: []*corev1.Pod{running("p", counts{"akri.sh/cam": "1"})},
			want: `{"status":{"capacity":{"akri.sh/cam":"1"},"allocatable":{"akri.sh/cam":"1"}}}`,
			kept: []held{{"akri.sh/cam", 0, 1}},
		},
		"init containers take turns, sidecars stay": {
			node: node(nil, nil),
			pods: []*corev1.Pod{with(running("p", counts{"akri.sh/cam": "1"}), func(p *corev1.Pod) {
				sidecar := container(counts{"akri.sh/cam": "1"})
				sidecar.RestartPolicy = &always
				p.Spec.InitContainers = []corev1.Container{sidecar, container(counts{"akri.sh/cam": "4"}), container(counts{"akri.sh/cam": "2"})}
			})},
			want: `{"status":{"capacity":{"akri.sh/cam":"5"},"allocatable":{"akri.sh/cam":"5"}}}`,
			kept: []held{{"akri.sh/cam", 0, 5}},
		},
		"bound by the scheduler, not admitted yet": {
			node: node(nil, nil),
			pods: []*corev1.Pod{with(running("p", counts{"akri.sh/cam": "1"}), func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodPending}
			})},
			want: `{"status":{"capacity":{"akri.sh/cam":"1"},"allocatable":{"akri.sh/cam":"1"}}}`,
			kept: []held{{"akri.sh/cam", 0, 1}},
		},
		"pods that hold nothing": {
			node: node(nil, nil),
			pods: []*corev1.Pod{
				with(running("done", counts{"akri.sh/cam": "1"}), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
				with(running("failed", counts{"akri.sh/cam": "1"}), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
				with(running("elsewhere", counts{"akri.sh/cam": "1"}), func(p *corev1.Pod) { p.Spec.NodeName = "b" }),
				with(running("forged", counts{"akri.sh/cam": "100"}), func(p *corev1.Pod) {
					p.Annotations = map[string]string{assignment.HolderAnnotation: "another"}
				}),
				with(running("by spec.nodeName", counts{"akri.sh/cam": "1000"}), func(p *corev1.Pod) { p.Annotations = nil }),
				running("no slots", counts{"nvidia.com/gpu": "1"}),
			},
		},

		"device plugins": {
			node: node(two, two),
			info: types.NodeInfo{
				Capacity: types.ResourceList{"resource/group/gpu/0/cards": 1},
				KubeCap:  types.ResourceList{"nvidia.com/gpu": 2, "akri.sh/cam": 9},
				KubeAlloc: types.ResourceList{
					"nvidia.com/gpu": 1, "example.com/widget": 3,
				},
			},
			slots: cam,
			// The kubelet would make allocatable what capacity is.
			want: `{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"{\"name\":\"a\",\"capacity\":{\"resource/group/gpu/0/cards\":1}}",` +
				`"kubeslot.io/plugin-resources":"example.com/widget,nvidia.com/gpu"}},` +
				`"status":{"capacity":{"example.com/widget":"3","nvidia.com/gpu":"1"},"allocatable":{"example.com/widget":"3","nvidia.com/gpu":"1"}}}`,
		},
		"device plugins, all said": {
			node: with(node(gpus, gpus), list("nvidia.com/gpu")),
			info: types.NodeInfo{KubeCap: types.ResourceList{"nvidia.com/gpu": 2}},
		},
		"what a device plugin no longer says goes, and only of ours": {
			node: with(node(counts{"nvidia.com/gpu": "2", "example.com/other": "1"}, counts{"nvidia.com/gpu": "2"}), list("nvidia.com/gpu")),
			want: `{"metadata":{"annotations":{"kubeslot.io/plugin-resources":null}},"status":{"capacity":{"nvidia.com/gpu":null},"allocatable":{"nvidia.com/gpu":null}}}`,
		},
		"a device plugin's resource that pods hold": {
			node: with(node(gpus, gpus), list("nvidia.com/gpu")),
			pods: []*corev1.Pod{running("p", counts{"nvidia.com/gpu": "1", "example.com/other": "1"})},
			want: `{"status":{"capacity":{"nvidia.com/gpu":"1"},"allocatable":{"nvidia.com/gpu":"1"}}}`,
			kept: []held{{"nvidia.com/gpu", 0, 1}},
		},
		"the kubelet's own device plugin has it": {
			node:    node(gpus, gpus),
			info:    types.NodeInfo{KubeCap: types.ResourceList{"nvidia.com/gpu": 8}},
			foreign: []types.ResourceName{"nvidia.com/gpu"},
		},
		"a device plugin of the kubelet has gone": {
			node: node(counts{"nvidia.com/gpu": "0"}, counts{"nvidia.com/gpu": "0"}),
			info: types.NodeInfo{KubeCap: types.ResourceList{"nvidia.com/gpu": 8}},
			want: `{"metadata":{"annotations":{"kubeslot.io/plugin-resources":"nvidia.com/gpu"}},"status":{"capacity":{"nvidia.com/gpu":"8"},"allocatable":{"nvidia.com/gpu":"8"}}}`,
		},
		"a list that somebody wrote": {
			node: with(node(counts{"cpu": "4", "akri.sh/cam": "2", "x": "1"}, nil), list("cpu,,akri.sh/cam,x,/")),
			want: `{"metadata":{"annotations":{"kubeslot.io/plugin-resources":null}},"status":{"capacity":{"akri.sh/cam":null}}}`,
		},
		"plugins that start": {
			node: with(node(gpus, gpus), list("nvidia.com/gpu"), func(n *corev1.Node) {
				n.Annotations[assignment.Annotation] = `{"name":"a","capacity":{"old":1,"new":1},"used":{"old":1},"scorer":{"old":1}}`
			}),
			info:      types.NodeInfo{Capacity: types.ResourceList{"new": 2}, KubeCap: types.ResourceList{"example.com/widget": 3}},
			unsettled: true,
			want: `{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"{\"name\":\"a\",\"capacity\":{\"new\":2,\"old\":1},\"scorer\":{\"old\":1}}",` +
				`"kubeslot.io/plugin-resources":"example.com/widget,nvidia.com/gpu"}},` +
				`"status":{"capacity":{"example.com/widget":"3"},"allocatable":{"example.com/widget":"3"}}}`,
		},
		"plugins that start, beside garbage": {
			node: with(node(nil, nil), func(n *corev1.Node) { n.Annotations[assignment.Annotation] = "x" }), unsettled: true,
			want: `{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"{\"name\":\"a\"}"}}}`,
		},
		"more than the annotations take": {
			node: with(node(counts{"nvidia.com/gpu": "2"}, nil), list("nvidia.com/gpu"), func(n *corev1.Node) {
				n.Annotations["other"] = strings.Repeat("x", maxAnnotations-200)
			}),
			info:  types.NodeInfo{Capacity: types.ResourceList{types.ResourceName(strings.Repeat("y", 200)): 1}, KubeCap: types.ResourceList{"example.com/widget": 3}},
			slots: cam, notWritten: true,
			want: `{"status":{"capacity":{"akri.sh/cam":"2"},"allocatable":{"akri.sh/cam":"2"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.info.Name = "a"
			got := plan(view{node: tc.node, devices: tc.info.Clone(), settled: !tc.unsettled, slots: tc.slots,
				pods: tc.pods, now: time.Unix(1000, 0)})
			if (got.notWritten != nil) != tc.notWritten {
				t.Fatal(got.notWritten)
			}
			if diff := cmp.Diff(tc.foreign, got.foreign); diff != "" {
				t.Errorf("foreign (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, encoded(t, got.patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.kept, got.kept, cmp.AllowUnexported(held{})); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

// Each step is a look at the node; the patch is applied before the next one.
func TestAmountsRiseAtOnceAndDecreaseLater(t *testing.T) {
	const after = 30 * time.Second
	type step struct {
		at      int   // seconds
		cam     int64 // slots of Configuration cam
		pods    []*corev1.Pod
		want    string // of akri.sh/cam, "" for none
		recheck time.Duration
	}
	for name, steps := range map[string][]step{
		"lowered after a while": {
			{at: 0, cam: 6, want: "6"},
			{at: 10, cam: 2, want: "6", recheck: after},
			{at: 39, cam: 2, want: "6", recheck: time.Second},
			{at: 40, cam: 2, want: "2"},
		},
		"removed after a while": {
			{at: 0, cam: 6, want: "6"},
			{at: 10, want: "6", recheck: after},
			{at: 40, want: ""},
		},
		"needed again in between": {
			{at: 0, cam: 6, want: "6"},
			{at: 10, want: "6", recheck: after},
			{at: 20, cam: 7, want: "7"},
			{at: 41, want: "7", recheck: after},
			{at: 71, want: ""},
		},
		"the time starts anew when it sinks further": {
			{at: 0, cam: 6, want: "6"},
			{at: 10, cam: 4, want: "6", recheck: after},
			{at: 30, cam: 2, want: "6", recheck: after},
			{at: 50, cam: 3, want: "6", recheck: 10 * time.Second},
			{at: 60, cam: 3, want: "3"},
		},
		"a pod that was bound before it sank, and is seen only now": {
			{at: 0, cam: 6, want: "6"},
			{at: 10, want: "6", recheck: after},
			{at: 15, pods: []*corev1.Pod{running("late", counts{"akri.sh/cam": "2"})}, want: "6", recheck: 25 * time.Second},
			{at: 40, pods: []*corev1.Pod{running("late", counts{"akri.sh/cam": "2"})}, want: "2"},
			{at: 50, want: "2", recheck: after},
			{at: 80, want: ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, known := node(nil, nil), pendingDecreases(nil)
			for _, s := range steps {
				got := plan(view{node: n, devices: types.NewNodeInfoWithName("a"), settled: true,
					slots: map[string]int64{"cam": s.cam}, pods: s.pods, decreases: known,
					now: time.Unix(int64(1000+s.at), 0), lowerAfter: after})
				known = got.decreases
				apply(t, n, got.patch)
				for kind, list := range map[string]corev1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
					is := ""
					if q, ok := list["akri.sh/cam"]; ok {
						is = q.String()
					}
					if is != s.want {
						t.Errorf("after %d s the %s is %q, want %q", s.at, kind, is, s.want)
					}
				}
				if got.recheck != s.recheck {
					t.Errorf("after %d s: to be looked at again in %s, want %s", s.at, got.recheck, s.recheck)
				}
			}
		})
	}
}

// An Instance's amount, of a former kubecri, does not sink: it goes whole and at once.
func TestAmountsOfInstancesGoAtOnce(t *testing.T) {
	n := node(counts{"akri.sh/cam": "2", "akri.sh/cam-8120fe": "2"}, counts{"akri.sh/cam": "2", "akri.sh/cam-8120fe": "2"})
	got := plan(view{node: n, devices: types.NewNodeInfoWithName("a"), settled: true, slots: map[string]int64{"cam": 2},
		now: time.Unix(1000, 0), lowerAfter: time.Hour})
	if want := `{"status":{"capacity":{"akri.sh/cam-8120fe":null},"allocatable":{"akri.sh/cam-8120fe":null}}}`; encoded(t, got.patch) != want {
		t.Errorf("patch %s, want %s", encoded(t, got.patch), want)
	}
}

// What is due is lowered at the next attempt when the patch could not be written.
func TestADecreaseIsPendingUntilItIsWritten(t *testing.T) {
	n := node(counts{"akri.sh/cam": "1"}, counts{"akri.sh/cam": "1"})
	known := pendingDecreases{"akri.sh/cam": {since: time.Unix(0, 0)}}
	for range 2 {
		got := plan(view{node: n, devices: types.NewNodeInfoWithName("a"), settled: true, decreases: known,
			now: time.Unix(1000, 0), lowerAfter: time.Second})
		if got.patch.IsZero() {
			t.Fatal("plan() changes nothing, want the resource removed")
		}
		known = got.decreases
	}
}

// encoded is the patch as it is sent, "" for none.
func encoded(t *testing.T, p nodewriter.Patch) string {
	t.Helper()
	if p.IsZero() {
		return ""
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func apply(t *testing.T, n *corev1.Node, patch nodewriter.Patch) {
	t.Helper()
	if patch.IsZero() {
		return
	}
	is, err := kubefake.NewClientset(n.DeepCopy()).CoreV1().Nodes().Patch(t.Context(), n.Name,
		apitypes.StrategicMergePatchType, []byte(encoded(t, patch)), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	*n = *is
}
