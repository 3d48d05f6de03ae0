package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// nodeUnreachable is the reason of what waits for a node that is not Ready.
const nodeUnreachable = "NodeUnreachable"

// releaseOf is what decides who may release the claim. Pods that the user may not list are taken
// to run.
func (v *View) releaseOf(c *v1alpha1.SlotClaim) v1alpha1.ReleaseFacts {
	f := v1alpha1.ReleaseFacts{Claim: c, Node: v.nodesByName[c.Spec.NodeName], PodRuns: v.objects.PodsOf != ""}
	f.Heard = c.Spec.ReleaseUnreachableAfter != nil // a node that may write no Lease promises nothing
	pod := v.podOfClaim(c)
	f.PodGoing = pod != nil && pod.DeletionTimestamp != nil
	if c.Spec.ResourceClaim != nil { // which has no pod that has ended
		f.PodRuns = !v.seesResourceClaimOf(c) || len(v.usersOf(c)) > 0
		return f
	}
	f.PodRuns = f.PodRuns || c.PodRuns(pod)
	return f
}

// podOfClaim is the pod that the claim was made for, if it can be seen.
func (v *View) podOfClaim(c *v1alpha1.SlotClaim) *corev1.Pod {
	if c.Spec.Pod == nil {
		return nil
	}
	return v.pods[string(c.Spec.Pod.UID)]
}

// examineUnreachable finds slots that wait for nodes that are not Ready: of pods that cannot go, pod
// by pod.
func (v *View) examineUnreachable(f *findings, now time.Time) {
	for name, c := range v.claims {
		if release := v.releaseOf(c); release.Waits() && !(release.PodRuns && release.PodGoing) && settled(c.CreationTimestamp.Time, now) {
			f.add("slotclaim/"+name, nodeUnreachable, "%s", v.unreachableText(release))
		}
	}
	for i := range v.objects.Pods {
		if pod := &v.objects.Pods[i]; !ended(pod) {
			v.examineStuck(f, pod, now)
		}
	}
}

// unreachableText says why the slot waits, and the ways out.
func (v *View) unreachableText(f v1alpha1.ReleaseFacts) string {
	c, what := f.Claim, "its pod "+v.podOf(f.Claim)+" is gone"
	switch {
	case c.Spec.ResourceClaim != nil:
		of := c.Spec.ResourceClaim
		what = fmt.Sprintf("no pod uses its ResourceClaim %s/%s", of.Namespace, of.Name)
	case c.Spec.Pod == nil:
		what = "no pod is named in its claim"
	case v.podOfClaim(c) != nil:
		what = "its pod " + v.podOf(c) + " has ended"
	}
	return fmt.Sprintf("%s, and node %s, which alone knows whether the container runs on, %s. %s", what, f.Node.Name, NotReady(f.Node), waysOut(f))
}

// NotReady says of a node that is not Ready since when, to go on from its name.
func NotReady(node *corev1.Node) string {
	if since := ReadyCondition(node).LastTransitionTime; !since.IsZero() {
		return "has not been Ready since " + since.UTC().Format(time.RFC3339)
	}
	return "is not Ready"
}

// ReadyCondition is the node's condition Ready; a zero one when it has none.
func ReadyCondition(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// outOfService is how somebody says that a node does not run.
func outOfService(node string) string {
	return fmt.Sprintf("`kubectl taint node %s %s=off:NoExecute`", node, corev1.TaintNodeOutOfService)
}

// waysOut says what releases the slot of a claim that waits.
func waysOut(f v1alpha1.ReleaseFacts) string {
	node := f.Node.Name
	if f.Why() == v1alpha1.ReleaseOutOfService {
		return "The node has the taint " + corev1.TaintNodeOutOfService + ": the controller deletes such claims, so look whether it runs"
	}
	taint := outOfService(node) + ", "
	if f.Claim.Spec.MadeAgain { // the node said after the taint that it is in service
		taint = ""
	}
	text := fmt.Sprintf("The node releases the slot when it is back. If the node is off, say so: %s`kubectl delete node %s` or, for this slot alone, `kubectl kubeslot release %s`",
		taint, node, f.Claim.Name)
	if after, ok := f.Unreachable(); ok {
		text += fmt.Sprintf(". Without that the controller releases it when kubecri there was not heard of for %s (releaseUnreachableAfter)", Short(after))
	}
	return text
}

// Short is a duration without units that are zero, as people write it.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// examineStuck finds pods that hold slots and cannot go, since their node cannot say that their
// containers have ended.
func (v *View) examineStuck(f *findings, pod *corev1.Pod, now time.Time) {
	node := v.nodesByName[pod.Spec.NodeName]
	if pod.DeletionTimestamp == nil || node == nil || v1alpha1.Ready(node) || v1alpha1.OutOfService(node) || now.Sub(pod.DeletionTimestamp.Time) <= settling {
		return
	}
	var held []string
	for _, s := range v.slots().ofPod[string(pod.UID)] {
		held = append(held, s.Name)
	}
	if len(held) == 0 {
		return
	}
	f.add(podObject(pod), nodeUnreachable, "it is being deleted, and node %s, which alone can say that its containers have ended, %s: its slots (%s) are kept until it is gone. It goes when the node is back. "+
		"If the node is off, say so: %s or `kubectl delete node %s`; or, for this pod alone, `kubectl delete pod -n %s %s --force --grace-period=0` and then `kubectl kubeslot release %s`",
		node.Name, NotReady(node), strings.Join(held, ", "), outOfService(node.Name), node.Name, pod.Namespace, pod.Name, strings.Join(held, " "))
}

// unreachableHolders says how many of the slots wait for a node that is not Ready, and for which;
// "" when none does.
func (v *View) unreachableHolders(slots []Slot) string {
	count, nodes := 0, map[string]bool{}
	for _, s := range slots {
		if s.Unreachable {
			count++
			nodes[s.Node] = true
		}
	}
	if count == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(nodes))
	where := "node " + names[0] + ", which " + NotReady(v.nodesByName[names[0]])
	if len(names) > 1 {
		where = "nodes that are not Ready (" + some(names, 3) + ")"
	}
	return fmt.Sprintf("%s kept for %s: kubectl kubeslot doctor says how to release such slots",
		counted(count, "slot is", "slots are"), where)
}
