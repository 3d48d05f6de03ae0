package command

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubedevice "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func configurationOf(a args, ns, name string) *akriv0.Configuration {
	capacity, _ := strconv.Atoi(a.get("capacity", "2"))
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(ns + name), CreationTimestamp: long, Labels: a.pairs("labels")},
		Spec: akriv0.ConfigurationSpec{Capacity: int32(capacity), DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: a.get("handler", "onvif")}}}
	switch scope := a.get("unique", ""); scope {
	case "none":
		c.Spec.UniqueDevices = new(bool)
	default:
		c.Spec.UniqueScope = akriv0.UniqueScope(scope)
	}
	if a.has("discovery") {
		c.Spec.Discovery = &akriv0.Discovery{NodeSelector: a.pairs("discovery")}
	}
	if reason := a.get("brokers", ""); reason != "" { // the status has counted 3 of 10 brokers
		c.Status.Brokers = &akriv0.BrokerCount{Desired: 10, Ready: 9, Updated: 3}
		for _, of := range []string{akriv0.ConditionReady, akriv0.ConditionBrokersReady} {
			c.Status.Conditions = append(c.Status.Conditions,
				metav1.Condition{Type: of, Status: metav1.ConditionFalse, Reason: reason})
		}
	}
	allocator(a, c)
	if a.has("deleting") {
		c.DeletionTimestamp, c.Finalizers = &long, []string{"example.com/keep"}
	}
	return c
}

func nodeOf(a args, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: a.pairs("labels"), CreationTimestamp: long}, Spec: corev1.NodeSpec{Unschedulable: a.has("cordoned")}}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	if a.has("notready") {
		ready.Status, ready.Message, ready.LastTransitionTime = corev1.ConditionUnknown, "Kubelet stopped posting node status.", long
	}
	if key := a.get("taint", ""); key != "" {
		n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	}
	n.Status = corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: a.get("kubelet", "v1.37.2")},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse(a.get("cpu", "4")), "pods": resource.MustParse(a.get("pods", "110"))}}
	for of, amount := range a.pairs("advertises") {
		n.Status.Allocatable[corev1.ResourceName("akri.sh/"+of)] = resource.MustParse(amount)
	}
	for of, amount := range a.pairs("others") {
		n.Status.Allocatable[corev1.ResourceName(of)] = resource.MustParse(amount)
	}
	if namespace := a.get("kubecri", ""); namespace != "" {
		n.Annotations = map[string]string{v1alpha1.KubecriNamespaceAnnotation: namespace, v1alpha1.NRIPluginAnnotation: a.get("plugin", "kubecri")}
	}
	if status := a.get("without", ""); status != "" {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.StartsWithoutKubecri, Status: corev1.ConditionStatus(status), Message: "what the runtime does"})
	}
	if a.has("badannotation") {
		n.Annotations = map[string]string{assignment.Annotation: "{"}
	}
	return n
}

func (s *story) slice(node string) *v1alpha1.DeviceSlice {
	key := "slice/" + node
	if s.objects[key] == nil {
		s.set(key, &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0", CreationTimestamp: long}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node}})
	}
	return s.objects[key].(*v1alpha1.DeviceSlice)
}

func (s *story) devices(a args, ns string) {
	node, of := a.get("node", ""), a.get("of", "cam")
	slice := s.slice(node)
	for _, line := range strings.Split(a.Input, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: ns, Name: of}, ID: words[0], Shared: true}
		for _, word := range words[1:] {
			switch word {
			case "lost":
				d.Unschedulable = true
			case "local":
				d.Shared = false
			case "forged":
				d.Hash = "000000"
			}
		}
		if d.Hash == "" {
			d.Hash = slot.InstanceHash(d.ID, d.Shared, node, 6)
		}
		slice.Spec.Devices = append(slice.Spec.Devices, d)
		name := d.Instance()
		s.instances[d.ID] = name
		in, _ := s.objects["instance/"+name].(*akriv0.Instance)
		if in == nil {
			in = &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: a.pairs("labels"), CreationTimestamp: long},
				Spec: akriv0.InstanceSpec{ConfigurationName: of, Capacity: 2, Shared: d.Shared}}
			s.set("instance/"+name, in)
		}
		in.Spec.Nodes = append(in.Spec.Nodes, node)
	}
}

func (s *story) refused(a args, ns, name, why string) {
	two, has := int32(2), int64(0)
	if n, err := strconv.ParseInt(a.get("has", ""), 10, 32); err == nil {
		has = n
	}
	kind, meta := a.get("kind", ""), metav1.ObjectMeta{Namespace: ns, Name: name}
	if owner, of, found := strings.Cut(a.get("of", ""), "/"); found {
		yes := true
		meta.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: of, Controller: &yes}}
	}
	if kind == "Job" {
		suspended := a.has("suspended")
		job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Suspend: &suspended}}
		if a.has("failed") {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
		}
		s.set("job/"+ns+"/"+name, job)
	} else {
		s.set("replicaset/"+ns+"/"+name, &appsv1.ReplicaSet{ObjectMeta: meta,
			Spec: appsv1.ReplicaSetSpec{Replicas: &two}, Status: appsv1.ReplicaSetStatus{Replicas: int32(has)}})
	}
	s.set("event/"+name, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: corev1.EventTypeWarning, Reason: "FailedCreate", LastTimestamp: long,
		Message:        fmt.Sprintf("Error creating: pods %q is forbidden: ValidatingAdmissionPolicy 'kubeslot-scheduler-name' with binding 'kubeslot-scheduler-name' denied request: %s", name+"-x", why),
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: ns, Name: name}})
}

// slotName translates yard-0.
func (s *story) slotName(t *testing.T, text string) slot.Name {
	n, err := slot.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if instance := s.instances[n.Instance]; instance != "" {
		n.Instance = instance
	}
	return n
}

func (s *story) claim(a args, ns string) {
	n := s.slotName(a.t, a.get("slot", ""))
	pod := a.get("pod", "")
	c := v1alpha1.NewSlotClaim(n, v1alpha1.SlotClaimSpec{NodeName: a.get("node", ""), Container: "main", Level: v1alpha1.ConfigurationLevel,
		Holder: uid(ns, pod), Pod: &v1alpha1.PodReference{Namespace: ns, Name: pod, UID: types.UID(uid(ns, pod))}}, metav1.OwnerReference{})
	c.UID, c.Spec.MadeAgain = types.UID("claim-"+c.Name), a.has("again")
	if promised, err := time.ParseDuration(a.get("promised", "")); err == nil {
		c.Spec.ReleaseUnreachableAfter = &metav1.Duration{Duration: promised}
	}
	s.runs[c.Name] = a.has("runs")
	if pod == "" {
		c.Spec.Pod, c.Spec.Holder = nil, "device-7"
	}
	if name := a.get("resourceclaim", ""); name != "" {
		heldByClaim(c, ns, name)
	}
	if user := a.get("by", ""); user != "" {
		c.Annotations = map[string]string{v1alpha1.PodAnnotation: ns + "/" + user}
	}
	c.CreationTimestamp = long
	if a.has("new") {
		c.CreationTimestamp = metav1.NewTime(storyNow)
	}
	s.set("claim/"+c.Name, c)
	if in, ok := s.objects["instance/"+n.Instance].(*akriv0.Instance); ok {
		if in.Spec.DeviceUsage == nil {
			in.Spec.DeviceUsage = map[string]string{}
		}
		in.Spec.DeviceUsage[c.Name] = c.Spec.Usage().String()
	}
}

func uid(ns, pod string) string { return "uid-" + ns + "-" + pod }

func (s *story) pod(a args, ns, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(a.get("uid", uid(ns, name))), CreationTimestamp: long, Labels: a.pairs("labels"), Annotations: map[string]string{}},
		Spec:   corev1.PodSpec{SchedulerName: a.get("scheduler", "default-scheduler"), NodeSelector: a.pairs("selector"), NodeName: a.get("node", "")},
		Status: corev1.PodStatus{Phase: corev1.PodPending, NominatedNodeName: a.get("nominated", "")}}
	if priority, err := strconv.Atoi(a.get("priority", "")); err == nil {
		p.Spec.Priority = new(int32)
		*p.Spec.Priority = int32(priority)
	}
	if a.has("new") {
		p.CreationTimestamp = metav1.NewTime(storyNow)
	}
	if gate := a.get("gate", ""); gate != "" {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
	}
	if a.has("deleting") {
		p.DeletionTimestamp, p.Finalizers = &long, []string{"example.com/keep"}
	}
	p.Spec.RestartPolicy = corev1.RestartPolicy(a.get("restart", "Always"))
	if a.has("static") {
		p.Annotations["kubernetes.io/config.source"] = "file"
	}
	s.containers(a, p)
	s.assign(a, p)
	if plugin := a.get("requires", ""); plugin != "" {
		p.Annotations["required-plugins.noderesource.dev/container.main"] = fmt.Sprintf("[%q]", plugin)
	}
	s.status(a, p)
	claims(a, p)
	return p
}

func (s *story) containers(a args, p *corev1.Pod) {
	lists := map[string]corev1.ResourceList{"main": {}}
	order := []string{"main"}
	add := func(container, resourceName, amount string) {
		if lists[container] == nil {
			lists[container] = corev1.ResourceList{}
			order = append(order, container)
		}
		lists[container][corev1.ResourceName(resourceName)] = resource.MustParse(amount)
	}
	for _, ask := range a.all("asks") {
		what, amount, _ := strings.Cut(ask, ":")
		container, of, found := strings.Cut(what, "/")
		if !found {
			container, of = "main", what
		}
		if instance := s.instances[of]; instance != "" {
			of = instance
		}
		add(container, "akri.sh/"+of, amount)
	}
	for of, amount := range a.pairs("others") {
		add("main", of, amount)
	}
	if cpu := a.get("cpu", ""); cpu != "" {
		add("main", "cpu", cpu)
	}
	for _, container := range order {
		c := corev1.Container{Name: container, Resources: corev1.ResourceRequirements{Requests: lists[container], Limits: lists[container]}}
		if container == "init" {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
}

// assign gives the pod the slots that "has" names: [container/[resource/]]slot.
func (s *story) assign(a args, p *corev1.Pod) {
	if !a.has("has") && !a.has("plugin") {
		return
	}
	grants := map[string][]assignment.Grant{}
	for _, text := range a.all("has") {
		parts := strings.Split(text, "/")
		container, of := "main", "cam"
		if len(parts) > 1 {
			container = parts[0]
		}
		if len(parts) > 2 {
			of = parts[1]
		}
		if instance := s.instances[of]; instance != "" {
			of = instance
		}
		grants[container] = append(grants[container], assignment.Grant{Resource: of, Ordinal: len(grants[container]), Slot: s.slotName(a.t, parts[len(parts)-1])})
	}
	info := &kubedevice.PodInfo{NodeName: p.Spec.NodeName, InitContainers: map[string]kubedevice.ContainerInfo{}, RunningContainers: map[string]kubedevice.ContainerInfo{}}
	for container, of := range grants {
		var c kubedevice.ContainerInfo
		assignment.Set(&c, of)
		if container == "init" {
			info.InitContainers[container] = c
		} else {
			info.RunningContainers[container] = c
		}
	}
	for i, device := range a.all("plugin") {
		c := info.RunningContainers["main"]
		if c.AllocateFrom == nil {
			c.AllocateFrom = kubedevice.ResourceLocation{}
		}
		c.AllocateFrom[kubedevice.ResourceName(fmt.Sprintf("resource/group/any/%d/cards", i))] = kubedevice.ResourceName(device)
		info.RunningContainers["main"] = c
	}
	made, err := assignment.Encode(info, a.get("holder", string(p.UID)), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	for key, value := range made {
		p.Annotations[key] = value
	}
	if a.has("unread") {
		p.Annotations[assignment.Annotation] = "{"
	}
}

func (s *story) status(a args, p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		if a.Input != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: a.Input, LastTransitionTime: long}}
		}
		return
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: long}}
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(storyNow.Add(-30 * time.Minute))}}
	p.Status.Phase = corev1.PodRunning
	if a.has("ready") {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
	switch {
	case a.has("failed"):
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, a.get("failed", ""), a.Input
		return
	case a.has("waiting"):
		p.Status.Phase = corev1.PodPending
		state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: a.get("waiting", ""), Message: a.Input}}
	case a.has("ended"):
		code, _ := strconv.Atoi(a.get("ended", ""))
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: a.get("why", "Error")}}
	case a.has("starting"):
		p.Status.Phase = corev1.PodPending
		return
	}
	for i := range p.Spec.InitContainers {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: p.Spec.InitContainers[i].Name, State: state})
	}
	for i := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: p.Spec.Containers[i].Name, State: state})
	}
}
