package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Examine returns the problems at the time, by object. It needs all
// objects of the cluster: of a part it would say that the rest is missing.
func (v *View) Examine(now time.Time) []Finding {
	var f findings
	if v.notInstalled() {
		f.add("cluster", "NotInstalled", "Kubeslot is not installed here: %s left, which nobody serves. Install it, or delete its definitions, and with them all that is left: "+
			"kubectl delete crd -l app.kubernetes.io/part-of=kubeslot", counted(len(v.objects.Configurations), "Configuration is", "Configurations are"))
		v.leftInNodes(&f)
		return f
	}
	v.examineClaims(&f, now)
	v.examineGrants(&f, now)
	v.examineMissing(&f, now)
	v.examinePods(&f, now)
	v.examineRefused(&f)
	v.examineDRA(&f)
	v.examineConfigurations(&f)
	v.examineDeleted(&f)
	v.examineInstances(&f, now)
	v.examineNodes(&f, now)
	v.examineCluster(&f)
	v.examineParts(&f, now)
	return f.sorted()
}

// ExaminePart is Examine for who may not list all objects: what Configurations and Instances say
// themselves, and slots that wait for nodes that are not Ready.
func (v *View) ExaminePart(now time.Time) []Finding {
	var f findings
	v.examineConfigurations(&f)
	for i := range v.objects.Instances {
		v.examineInstance(&f, &v.objects.Instances[i])
	}
	v.examineUnreachable(&f, now)
	return f.sorted()
}

// sorted orders the findings by object, and says each once.
func (f findings) sorted() []Finding {
	slices.SortStableFunc(f, func(a, b Finding) int { return cmp.Compare(a.Object, b.Object) })
	said := map[Finding]bool{}
	return slices.DeleteFunc(f, func(one Finding) bool {
		twice := said[one]
		said[one] = true
		return twice
	})
}

// examineClaims finds claims that nobody uses, or that do not count.
func (v *View) examineClaims(f *findings, now time.Time) {
	v.examineUnreachable(f, now)
	for _, name := range slices.Sorted(maps.Keys(v.claims)) {
		c := v.claims[name]
		if !settled(c.CreationTimestamp.Time, now) {
			continue
		}
		object := "slotclaim/" + name
		at, err := slot.Parse(name)
		if err != nil {
			f.add(object, "BadName", "its name is not that of a slot: delete it")
			continue
		}
		d, known := v.devices[at.Instance]
		release := v.releaseOf(c)
		in, pod := v.instances[at.Instance], v.podOfClaim(c)
		switch {
		case v.nodesByName[c.Spec.NodeName] == nil:
			f.add(object, "NodeGone", "its node %s does not exist: the controller deletes such claims, so look whether it runs, or delete the claim", c.Spec.NodeName)
		case release.Waits(): // see examineUnreachable
		case v.resourceClaimGone(c):
			of := c.Spec.ResourceClaim
			f.add(object, "ResourceClaimGone", "its ResourceClaim %s/%s is gone, and node %s has not released it: "+
				"look at kubecri on that node", of.Namespace, of.Name, c.Spec.NodeName)
		case c.Spec.Pod != nil && pod == nil:
			f.add(object, "PodGone", "its pod %s/%s is gone, and node %s has not released it: look at kubecri on that node", c.Spec.Pod.Namespace, c.Spec.Pod.Name, c.Spec.NodeName)
		case pod != nil && ended(pod):
			f.add(object, "PodEnded", "its pod %s/%s has ended, and node %s has not released it: look at kubecri on that node", c.Spec.Pod.Namespace, c.Spec.Pod.Name, c.Spec.NodeName)
		case v.isDeleted(v.configurationOfClaim(c)): // see examineDeleted
		case in != nil && len(d.nodes) == 0 && slices.ContainsFunc(in.Status.Problems, deviceAway): // said of the Instance
		case slices.Contains(d.gone, c.Spec.NodeName):
			f.add(object, "DeviceGone", "its device is gone from node %s: the slot is free when the container that has it has ended: bring the device back, or delete that pod", c.Spec.NodeName)
		case !known || len(d.nodes) == 0:
			f.add(object, "DeviceUnknown", "no node reports its device; the slot is free when pod %s has ended: bring the device back, or delete that pod", v.podOf(c))
		case !v.reaches(c.Spec.NodeName, at.Instance):
			f.add(object, "DeviceUnknown", "node %s holds it, and does not report the device: look at kubecri and the discovery handler there, or delete the pod that has the slot", c.Spec.NodeName)
		case in != nil && at.Index >= v.capacity(in):
			f.add(object, "BeyondCapacity", "its Configuration has a capacity of %d: the slot goes when pod %s has ended: delete that pod, or raise the capacity again", v.capacity(in), v.podOf(c))
		}
	}
}

// examineGrants finds slots that two have. A pod that is being deleted gives back what it has.
func (v *View) examineGrants(f *findings, now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(v.granted)) {
		var first *corev1.Pod
		for _, g := range v.granted[name] {
			switch {
			case g.pod.DeletionTimestamp != nil:
				continue
			case first == nil:
				first = g.pod
			default:
				f.add(podObject(g.pod), "SlotAssignedTwice",
					"slot %s is also assigned to pod %s: delete one of the two, and report this", name, fullName(first))
			}
			if !settled(scheduled(g.pod), now) {
				continue
			}
			c := v.claims[name]
			if c != nil && c.Spec.Pod != nil && c.Spec.Pod.UID != g.pod.UID {
				f.add(podObject(g.pod), "SlotClaimed", "slot %s, which it is assigned, is still held by pod %s: that pod has to end; if it has, look at kubecri on its node", name, v.podOf(c))
			}
		}
	}
}

// examinePods finds annotations that nobody can read, and pods that nobody schedules.
func (v *View) examinePods(f *findings, now time.Time) {
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if ended(pod) {
			continue
		}
		if err := v.broken[pod]; err != nil {
			f.add(podObject(pod), "BadAssignment", "its assignment cannot be read: %v; delete it, and its next one is assigned anew", err)
		}
		if len(v.slotRequests(pod)) == 0 {
			continue
		}
		switch {
		case pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0 && scheduling(pod) == nil &&
			settled(pod.CreationTimestamp.Time, now):
			f.add(podObject(pod), "NoScheduler", "no scheduler has tried it since it was created: none of the name %q runs. Start it, or create the pod again with the right schedulerName", pod.Spec.SchedulerName)
		case pod.Spec.NodeName != "" && v.broken[pod] == nil && v.held[pod] == nil && len(waiting(pod)) > 0 &&
			!assignment.Static(pod.Annotations) && !v.choosesSlots(pod.Spec.NodeName) && settled(scheduled(pod), now):
			f.add(podObject(pod), "NotAssigned", "%s; create it again for Kubeslot's scheduler%s", v.unassigned(pod), v.rivals(pod))
		case pod.Spec.NodeName == "" && v.countedAsPlain(pod) != "":
			f.add(podObject(pod), "StockScheduler", "the scheduler of the name %q that tried it counts %s as it counts CPU, so it does not have Kubeslot's plugins: put Kubeslot's in its place, or name Kubeslot's in the pod's schedulerName%s",
				pod.Spec.SchedulerName, v.countedAsPlain(pod), v.rivals(pod))
		}
	}
}

// countedAsPlain is a resource of ours of which the scheduler said that there is not enough
// in the words of upstream's NodeResourcesFit, which Kubeslot's leaves to its own plugin; ""
// if there is none, or nodes whose kubelets choose slots, for which any scheduler does.
func (v *View) countedAsPlain(pod *corev1.Pod) string {
	if v.anyChooses() {
		return ""
	}
	for _, part := range v.parse(schedulerSays(pod)) {
		if resource := part.Fields["resource"]; part.Reason == "InsufficientResource" && strings.HasPrefix(resource, assignment.ResourcePrefix) {
			return resource
		}
	}
	return ""
}

// rivals says that two schedulers use the pod's scheduler name, where pods of the same name
// have slots.
func (v *View) rivals(pod *corev1.Pod) string {
	if !v.schedulers().Has(pod.Spec.SchedulerName) {
		return ""
	}
	return fmt.Sprintf(". Other pods of the name %q have slots: unless spec.nodeName was set here, two schedulers use "+
		"that name. Stop the one that is not Kubeslot's", pod.Spec.SchedulerName)
}

func (v *View) nameSchedulers() sets.Set[string] {
	names := sets.New[string]()
	for pod := range v.held {
		names.Insert(pod.Spec.SchedulerName)
	}
	return names
}

func (v *View) examineConfigurations(f *findings) {
	for i := range v.objects.Configurations {
		c := &v.objects.Configurations[i]
		object := "configuration/" + c.Namespace + "/" + c.Name
		for _, p := range v.reasonedProblems(c) {
			f.add(object, "ConfigurationProblem", "%s", configurationProblem(c, p))
		}
		if c.DeletionTimestamp != nil && len(c.Finalizers) > 0 {
			f.add(object, "Finalizers", "it is being deleted, and finalizers keep it: %v; nobody of Kubeslot sets any: remove them", c.Finalizers)
		}
	}
}

// examineInstances finds what is wrong with devices, and Instances that do not show what
// there is.
func (v *View) examineInstances(f *findings, now time.Time) {
	deleted := map[string]bool{}
	for _, d := range v.deleted() {
		deleted[d.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(v.instances)) {
		in := v.instances[name]
		if deleted[in.Spec.ConfigurationName] {
			continue // see examineDeleted
		}
		v.examineInstance(f, in)
		object := "instance/" + in.Namespace + "/" + name
		if v.configurations[in.Spec.ConfigurationName] == nil {
			f.add(object, "NoConfiguration", "its Configuration %s does not exist: it is left over, delete it", in.Spec.ConfigurationName)
		} else if late := v.mirrorLate(in, now); late != "" {
			f.add(object, "MirrorLate", "%s: the controller has not written it, look whether it runs", late)
		}
	}
}

// examineInstance finds what the Instance says itself. That no node sees the device is one problem:
// what comes of it for claims is not said besides.
func (v *View) examineInstance(f *findings, in *akriv0.Instance) {
	object, problems := "instance/"+in.Namespace+"/"+in.Name, in.Status.Problems
	if at := slices.IndexFunc(problems, deviceAway); at >= 0 {
		problems = problems[at : at+1]
	}
	for _, p := range problems {
		f.add(object, "InstanceProblem", "%s", instanceProblem(in, p))
	}
	for _, node := range v.lost(in) {
		f.add(object, "HandlerDown", "node %s does not know whether the device is there, since its discovery "+
			"handler does "+
			"not answer: look at the handler's pod or log there", node)
	}
}

// mirrorLate says of a claim that deviceUsage should show by now.
func (v *View) mirrorLate(in *akriv0.Instance, now time.Time) string {
	for _, s := range v.taken(in) {
		if c := v.claims[s.Name]; c != nil && in.Spec.DeviceUsage[s.Name] == "" &&
			settled(c.CreationTimestamp.Time, now) && v.reaches(c.Spec.NodeName, in.Name) {
			return "its deviceUsage does not show the claim of slot " + s.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Spec.DeviceUsage)) {
		if in.Spec.DeviceUsage[name] != "" && v.claims[name] == nil && len(v.granted[name]) == 0 &&
			settled(in.CreationTimestamp.Time, now) {
			return "its deviceUsage shows a claim of slot " + name + " that there is not"
		}
	}
	return ""
}
