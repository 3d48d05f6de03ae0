package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubedevice "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

var (
	now  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	long = metav1.NewTime(now.Add(-time.Hour))
)

// yard and gate are the Instances of two cameras.
var yard, gate = "cam-" + slot.InstanceHash("yard", true, "", 6), "cam-" + slot.InstanceHash("gate", true, "", 6)

// cluster has two shared cameras of two slots, which nodes a and b reach.
func cluster() Objects {
	device := func(id string) v1alpha1.Device {
		return v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: id,
			Hash: slot.InstanceHash(id, true, "", 6), Shared: true}
	}
	slice := func(node string) v1alpha1.DeviceSlice {
		return v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: []v1alpha1.Device{device("yard"), device("gate")}}}
	}
	instance := func(name string) akriv0.Instance {
		return akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 2, Shared: true, Nodes: []string{"a", "b"}}}
	}
	node := func(name string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: ready(true)}
	}
	return Objects{
		Configurations: []akriv0.Configuration{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "c", CreationTimestamp: long},
			Spec: akriv0.ConfigurationSpec{Capacity: 2, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "onvif"}}}},
		Instances: []akriv0.Instance{instance(yard), instance(gate)},
		Slices:    []v1alpha1.DeviceSlice{slice("a"), slice("b")},
		Nodes:     []corev1.Node{node("a"), node("b")},
	}
}

func ready(is bool) corev1.NodeStatus {
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: long}
	if !is {
		c.Status = corev1.ConditionUnknown
	}
	return corev1.NodeStatus{Conditions: []corev1.NodeCondition{c}}
}

// pod asks for so many of a resource.
func pod(name, resourceName string, count int64) corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceName("akri.sh/" + resourceName): *resource.NewQuantity(count, resource.DecimalSI)}
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: long},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

// bound is the pod on the node, with the slots.
func bound(t *testing.T, p corev1.Pod, node, resourceName string, slots ...string) corev1.Pod {
	t.Helper()
	var grants []assignment.Grant
	for i, text := range slots {
		name, err := slot.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, assignment.Grant{Resource: resourceName, Ordinal: i, Slot: name})
	}
	var c kubedevice.ContainerInfo
	assignment.Set(&c, grants)
	annotations, err := assignment.Encode(&kubedevice.PodInfo{NodeName: node, RunningContainers: map[string]kubedevice.ContainerInfo{"main": c}}, string(p.UID), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations, p.Spec.NodeName, p.Status.Phase = annotations, node, corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: long}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return p
}

func claim(name, node, pod string) v1alpha1.SlotClaim {
	return v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: long}, Spec: v1alpha1.SlotClaimSpec{
		NodeName: node, Container: "main", Level: v1alpha1.ConfigurationLevel, Holder: pod,
		Pod: &v1alpha1.PodReference{Namespace: "default", Name: pod, UID: types.UID(pod)}}}
}

func TestSlots(t *testing.T) {
	o := cluster()
	o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "runs"), claim(yard+"-7", "b", "old")}
	o.Claims[0].Spec.Container = "before" // an init container, which has ended, and left its slot to main
	o.Pods = []corev1.Pod{bound(t, pod("runs", "cam", 1), "a", "cam", yard+"-0"), bound(t, pod("starts", "cam", 1), "b", "cam", gate+"-1")}
	o.Pods[1].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	want := map[string]Slot{
		yard + "-0": {State: Held, Namespace: "default", Pod: "runs", PodUID: "runs", Container: "main", Node: "a", Level: "CL", Since: long.Time},
		yard + "-1": {State: Free},
		yard + "-7": {State: Held, Namespace: "default", Pod: "old", PodUID: "old", Container: "main", Node: "b", Level: "CL", Since: long.Time, BeyondCapacity: true},
		gate + "-0": {State: Free},
		gate + "-1": {State: Assigned, Namespace: "default", Pod: "starts", PodUID: "starts", Container: "main", Node: "b", Level: "CL", Since: long.Time},
	}
	got := map[string]Slot{}
	for _, s := range New(o).Slots() {
		if device := map[string]string{yard: "yard", gate: "gate"}[s.Instance]; s.Device != device {
			t.Errorf("slot %s is of device %q, want %q", s.Name, s.Device, device)
		}
		name := s.Name
		s.Name, s.InstanceNamespace, s.Instance, s.Configuration, s.Device = "", "", "", "", ""
		got[name] = s
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Slots() (-want +got):\n%s", diff)
	}
}

// An init container has left its slot to main, which has failed and waits to be started again.
func TestSlotOfAContainerInBackOff(t *testing.T) {
	o := cluster()
	o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "fails")}
	o.Claims[0].Spec.Container = "before"
	p := bound(t, pod("fails", "cam", 1), "a", "cam", yard+"-0")
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	p.Spec.InitContainers = []corev1.Container{{Name: "before", Resources: p.Spec.Containers[0].Resources}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "before", State: ended}}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	p.Status.ContainerStatuses[0].State = waits
	for main, want := range map[string]corev1.ContainerState{"before": {}, "main": ended} {
		p.Status.ContainerStatuses[0].LastTerminationState = want
		o.Pods = []corev1.Pod{p}
		if got := New(o).Taken(); len(got) != 1 || got[0].Container != main {
			t.Errorf("slots %+v, want that of %s", got, main)
		}
	}
}

func TestSlotsWithoutTheRightToListClaims(t *testing.T) {
	o := cluster()
	o.Slices = nil
	o.Instances[0].Spec.DeviceUsage = map[string]string{yard + "-0": "C:uid:a", yard + "-1": "b"}
	var held []string
	for _, s := range New(o).Slots() {
		if s.State == Held {
			held = append(held, s.Name+" "+s.Level+" "+s.Holder())
		}
	}
	if diff := cmp.Diff([]string{yard + "-0 CL node a", yard + "-1 IL node b"}, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// A user of one namespace sees of his own pods whether they have what they were given.
func TestSlotsOfOwnPodsWithoutTheRightToListClaims(t *testing.T) {
	o := cluster()
	o.Slices, o.Nodes, o.PodsOf = nil, nil, "default"
	o.Pods = []corev1.Pod{bound(t, pod("runs", "cam", 1), "a", "cam", yard+"-0"), bound(t, pod("starts", "cam", 1), "a", "cam", gate+"-0"), bound(t, pod("moved", "cam", 1), "a", "cam", gate+"-1")}
	o.Instances[0].Spec.DeviceUsage = map[string]string{yard + "-0": "C:runs:a"}
	o.Instances[1].Spec.DeviceUsage = map[string]string{gate + "-1": "C:old:b"} // another node has not released it
	want := map[string]State{"runs": Held, "starts": Assigned, "moved": Assigned}
	got := map[string]State{}
	for _, s := range New(o).Slots() {
		if s.Pod != "" {
			got[s.Pod] = s.State
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the slots of pods (-want +got):\n%s", diff)
	}
}

// What a user may not list is not said to be missing.
func TestWaitsOfOneNamespace(t *testing.T) {
	starting := func(p corev1.Pod) corev1.Pod {
		p.Spec.NodeName, p.Status.Phase = "a", corev1.PodPending
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
		return p
	}
	for name, tc := range map[string]struct {
		pod    corev1.Pod
		change func(o *Objects)
		want   string // reason
	}{
		"its Configuration may be in another namespace": {starting(bound(t, pod("p", "cam", 1), "a", "cam", yard+"-0")), func(o *Objects) {
			o.Configurations, o.Slices, o.Nodes, o.PodsOf = nil, nil, nil, "default"
		}, "Starting"},
		"its Configuration is gone": {starting(bound(t, pod("p", "cam", 1), "a", "cam", yard+"-0")), func(o *Objects) {
			o.Configurations = nil
		}, "ConfigurationGone"},
		"its node may choose slots itself": {starting(pod("p", "cam", 1)), func(o *Objects) { o.Nodes = nil }, "Starting"},
		"its node does not":                {starting(pod("p", "cam", 1)), func(*Objects) {}, "NotAssigned"},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster()
			o.Pods = []corev1.Pod{tc.pod}
			tc.change(&o)
			if p, _ := New(o).Pod("default", "p"); len(p.Waits) != 1 || p.Waits[0].Reason != tc.want {
				t.Errorf("it waits for %+v, want %s alone", p.Waits, tc.want)
			}
		})
	}
}

func TestConfigurations(t *testing.T) {
	o := cluster()
	o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "runs")}
	o.Pods = []corev1.Pod{bound(t, pod("runs", "cam", 1), "a", "cam", yard+"-0"), pod("waits", "cam", 5), pod("waits too", yard, 2), pod("other", "printers", 1)}
	later := o.Configurations[0]
	later.Namespace, later.UID, later.CreationTimestamp = "other", "d", metav1.NewTime(now)
	named := *later.DeepCopy()
	named.Name, named.UID = yard, "e"
	o.Configurations = append(o.Configurations, later, named)
	o.Slices[1].Spec.Problems = []v1alpha1.Problem{{Reason: "DiscoveryFailed", Message: "no route",
		Configuration: &v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}}}
	want := []Configuration{
		{Namespace: "default", Name: "cam", Handler: "onvif", Allocator: "Slots", Instances: 2,
			Counts:  Counts{Slots: 4, Free: 3, Held: 1},
			Waiting: 2, Nodes: 2,
			Problems: []string{"node b: DiscoveryFailed: no route"}},
		{Namespace: "other", Name: "cam", Handler: "onvif", Allocator: "Slots",
			Problems: []string{"the Configuration of this name in namespace default is older and has the name"}},
		{Namespace: "other", Name: yard, Handler: "onvif", Allocator: "Slots",
			Problems: []string{"Configuration default/cam is older and has or may have an Instance of this name"}},
	}
	if diff := cmp.Diff(want, New(o).Configurations()); diff != "" {
		t.Errorf("Configurations() (-want +got):\n%s", diff)
	}
}

func TestPodWithSlots(t *testing.T) {
	o := cluster()
	o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "runs")}
	o.Pods = []corev1.Pod{bound(t, pod("runs", "cam", 1), "a", "cam", yard+"-0")}
	o.Pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "slot taken"}}
	p, _ := New(o).Pod("default", "runs")
	if len(p.Slots) != 1 || p.Slots[0].Name != yard+"-0" || len(p.Waits) != 1 || p.State != Starting ||
		cmp.Diff([]string{"the kubelet, of container main: CreateContainerError: slot taken"}, p.Says) != "" {
		t.Errorf("Pod() = %+v", p)
	}
	for name, there := range map[string]bool{"default/runs": true, "default/nobody": false, "other/runs": false} {
		namespace, name, _ := strings.Cut(name, "/")
		if _, found := New(o).Pod(namespace, name); found != there || New(o).HasPod(namespace, name) != there {
			t.Errorf("pod %s/%s: Pod finds it %v and HasPod %v, want %v", namespace, name, found, New(o).HasPod(namespace, name), there)
		}
	}
}

// healthy is a cluster without problems: pod runs has a slot, and another waits.
func healthy(t *testing.T) Objects {
	t.Helper()
	o := cluster()
	o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "runs")}
	o.Instances[0].Spec.DeviceUsage = map[string]string{yard + "-0": "C:runs:a"}
	waits := pod("waits", "cam", 9)
	waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	o.Pods = []corev1.Pod{bound(t, pod("runs", "cam", 1), "a", "cam", yard+"-0"), waits}
	return o
}

func TestExamine(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, o *Objects)
		object string
		want   string // a part of the problem
	}{
		"all is well": {},
		"a claim whose pod is gone": {object: "slotclaim/" + gate + "-0", want: "its pod default/dead is gone, and node b has not released it",
			change: func(_ *testing.T, o *Objects) { o.Claims = append(o.Claims, claim(gate+"-0", "b", "dead")) }},
		"a claim that is new": {change: func(_ *testing.T, o *Objects) {
			c := claim(gate+"-0", "b", "dead")
			c.CreationTimestamp = metav1.NewTime(now)
			o.Claims = append(o.Claims, c)
		}},
		"a claim beyond the capacity": {object: "slotclaim/" + yard + "-5", want: "capacity of 2",
			change: func(_ *testing.T, o *Objects) { o.Claims = append(o.Claims, claim(yard+"-5", "a", "runs")) }},
		"a claim of a device that its node does not report": {object: "slotclaim/" + yard + "-0", want: "node a holds it, and does not report the device",
			change: func(_ *testing.T, o *Objects) { o.Slices[0].Spec.Devices = o.Slices[0].Spec.Devices[1:] }},
		"a claim of a device that nobody reports": {object: "slotclaim/" + yard + "-0", want: "no node reports its device",
			change: func(_ *testing.T, o *Objects) {
				for i := range o.Slices {
					o.Slices[i].Spec.Devices = o.Slices[i].Spec.Devices[1:]
				}
			}},
		"a slot of two pods": {object: "pod/default/twin", want: "slot " + yard + "-0 is also assigned to pod default/runs",
			change: func(t *testing.T, o *Objects) {
				o.Pods = append(o.Pods, bound(t, pod("twin", "cam", 1), "b", "cam", yard+"-0"))
			}},
		"a slot of two pods, of which the later has claimed it": {object: "pod/default/twin",
			want: "is also assigned to pod default/runs",
			change: func(t *testing.T, o *Objects) {
				twin := bound(t, pod("twin", "cam", 1), "b", "cam", yard+"-0")
				twin.Status.Conditions[0].LastTransitionTime = metav1.NewTime(long.Add(-time.Hour))
				o.Pods = append(o.Pods, twin)
			}},
		"a slot of two pods, of which one is being deleted": {change: func(t *testing.T, o *Objects) {
			twin := bound(t, pod("twin", "cam", 1), "b", "cam", yard+"-0")
			twin.DeletionTimestamp = new(metav1.NewTime(now))
			o.Pods = append(o.Pods, twin)
		}},
		"a container without a claim": {object: "pod/default/runs", want: "has not claimed its slot",
			change: func(_ *testing.T, o *Objects) { o.Claims = []v1alpha1.SlotClaim{} }},
		"a claim that the controller does not show": {object: "instance/default/" + yard, want: "does not show the claim of slot " + yard + "-0",
			change: func(_ *testing.T, o *Objects) { o.Instances[0].Spec.DeviceUsage = nil }},
		"a node whose claims are left": {object: "slotclaim/" + yard + "-0", want: "its node a does not exist",
			change: func(_ *testing.T, o *Objects) { o.Nodes = o.Nodes[1:] }},
		"a pod that nobody schedules": {object: "pod/default/waits", want: "no scheduler has tried it",
			change: func(_ *testing.T, o *Objects) { o.Pods[1].Status.Conditions = nil }},
		"an Instance that is left": {object: "instance/default/" + gate, want: "its Configuration cam does not exist",
			change: func(_ *testing.T, o *Objects) {
				o.Configurations, o.Claims, o.Instances[0].Spec.DeviceUsage, o.Pods = nil, []v1alpha1.SlotClaim{}, nil, nil
			}},
		"a Configuration that was deleted": {object: "configuration/default/cam", want: "was deleted while 1 pod has its slots",
			change: func(_ *testing.T, o *Objects) { o.Configurations = nil }},
		"one that was deleted while pods share a ResourceClaim": {object: "configuration/default/cam",
			want: "was deleted while 2 pods have its slots: apply it again, or delete them (shop/x, shop/y)",
			change: func(_ *testing.T, o *Objects) {
				o.Configurations, o.Pods = nil, nil
				ofResourceClaim(o, "")
				c := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "u"}}
				for _, name := range []string{"x", "y"} {
					c.Status.ReservedFor = append(c.Status.ReservedFor,
						resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)})
				}
				o.ResourceClaims = []resourceapi.ResourceClaim{c}
			}},
		"a resource that is left": {object: "node/b", want: "2 of akri.sh/gone, of which there is no Configuration",
			change: func(_ *testing.T, o *Objects) {
				o.Slices, o.Nodes[1].Status.Allocatable = o.Slices[:1], corev1.ResourceList{"akri.sh/gone": resource.MustParse("2")}
			}},
		"a part that is not ready": {object: "pod/default/agent", want: "it is Kubeslot's kubecri, and not Ready",
			change: func(_ *testing.T, o *Objects) { o.Pods = append(o.Pods, part("agent", "kubecri", "v1", false)) }},
		"parts of one version": {change: func(_ *testing.T, o *Objects) {
			o.Pods = append(o.Pods, part("agent", "kubecri", "v1", true), part("controller", "controller", "v1", true))
		}},
		"parts of two versions": {object: "cluster", want: "v1 (kubecri), v2 (controller, scheduler); finish the upgrade",
			change: func(_ *testing.T, o *Objects) {
				o.Pods = append(o.Pods, part("agent", "kubecri", "v1", true), part("s", "scheduler", "v2", true), part("c", "controller", "v2", true))
			}},
		"an upgrade that is going on": {change: func(_ *testing.T, o *Objects) {
			late := part("c", "controller", "v2", true)
			late.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Minute))
			o.Pods = append(o.Pods, part("agent", "kubecri", "v1", true), late)
		}},
		"a node's annotation that nobody can read": {object: "node/b", want: "annotation KubeDevice/DeviceInfo is not the JSON",
			change: func(_ *testing.T, o *Objects) { o.Nodes[1].Annotations = map[string]string{assignment.Annotation: "{"} }},
		"a slice of a node that is gone": {object: "deviceslice/c-0", want: "its node c does not exist",
			change: func(_ *testing.T, o *Objects) {
				o.Slices = append(o.Slices, v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "c-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "c"}})
			}},
		"a device that lies": {object: "deviceslice/b-0", want: "a device that nobody believes",
			change: func(_ *testing.T, o *Objects) { o.Slices[1].Spec.Devices[0].Hash = "000000" }},
		"a problem of a node": {object: "node/b", want: "too many devices",
			change: func(_ *testing.T, o *Objects) {
				o.Slices[1].Spec.Problems = []v1alpha1.Problem{{Reason: "TooMany", Message: "too many devices"}}
			}},
		"a node without slices": {object: "node/c", want: "it has no DeviceSlice",
			change: func(_ *testing.T, o *Objects) {
				o.Nodes = append(o.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
			}},
		"a handler that does not answer": {object: "instance/default/" + gate, want: "node b does not know",
			change: func(_ *testing.T, o *Objects) { o.Slices[1].Spec.Devices[1].Unschedulable = true }},
		"a problem of an Instance": {object: "instance/default/" + gate, want: "two devices",
			change: func(_ *testing.T, o *Objects) { o.Instances[1].Status.Problems = []string{"two devices"} }},
		"an assignment that nobody can read": {object: "pod/default/runs", want: "cannot be read",
			change: func(t *testing.T, o *Objects) {
				o.Claims, o.Instances[0].Spec.DeviceUsage, o.Pods[0] = []v1alpha1.SlotClaim{}, nil, bound(t, pod("runs", "cam", 1), "a", "cam", yard+"-0", gate+"-0")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			o := healthy(t)
			if tc.change != nil {
				tc.change(t, &o)
			}
			findings := New(o).Examine(now)
			if tc.object == "" {
				if len(findings) != 0 {
					t.Errorf("Examine() = %+v, want nothing", findings)
				}
				return
			}
			for _, off := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour} { // of the reader's clock
				findings := New(o).Examine(now.Add(off))
				if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Object == tc.object && strings.Contains(f.Problem, tc.want) }) {
					t.Errorf("Examine() %s later = %+v, want %q of %s", off, findings, tc.want, tc.object)
				}
			}
		})
	}
}

// part is a pod of Kubeslot's own.
func part(name, of, version string, ready bool) corev1.Pod {
	p := pod(name, "cam", 0)
	p.Labels = map[string]string{"app.kubernetes.io/part-of": "kubeslot", "app.kubernetes.io/name": of, "app.kubernetes.io/version": version}
	p.Spec.NodeName, p.Status.Phase = "a", corev1.PodRunning
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func TestNode(t *testing.T) {
	o := cluster()
	o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "runs")}
	n, found := New(o).Node("a")
	if !found || !n.Reports || len(n.Instances) != 2 || len(n.Slots) != 1 {
		t.Errorf("Node(a) = %+v, %v", n, found)
	}
	if n, found := New(o).Node("c"); found {
		t.Errorf("Node(c) = %+v", n)
	}
}

// A Configuration is deleted and with it its Instances: who uses a device keeps it, and is
// seen to.
func TestSlotsWithoutAnInstance(t *testing.T) {
	o := cluster()
	o.Configurations, o.Instances = nil, nil
	o.Claims = []v1alpha1.SlotClaim{{ObjectMeta: metav1.ObjectMeta{Name: yard + "-0", Labels: map[string]string{v1alpha1.ConfigurationLabel: "cam"}},
		Spec: v1alpha1.SlotClaimSpec{NodeName: "a", Container: "main", Level: v1alpha1.ConfigurationLevel,
			Pod: &v1alpha1.PodReference{Namespace: "default", Name: "viewer", UID: "viewer"}}}}
	o.Pods = []corev1.Pod{pod("viewer", "cam", 1)}
	v := New(o)
	slots := v.Slots()
	if len(slots) != 1 || slots[0].State != Held || slots[0].Pod != "viewer" || slots[0].Configuration != "cam" || slots[0].Node != "a" {
		t.Fatalf("slots %+v, want the one that viewer holds", slots)
	}
	if p, ok := v.Pod("default", "viewer"); !ok || len(p.Slots) != 1 {
		t.Errorf("pod %+v, want its slot", p)
	}
}
