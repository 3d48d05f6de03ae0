package deviceplugins

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/resource"
)

// verdict is whether a node fits a pod.
type verdict struct {
	score   float64
	reasons []string // why not; none if it fits
	// hopeless is whether no other pod's end would help.
	hopeless bool
	// faulted is whether a plugin could not answer, or was not there: the pod is tried again when one is asked
	// again, or comes.
	faulted bool
}

// maxCount bounds a request that no node has an amount for: plugins written for
// KubeDevice count up to it. Those of amounts, such as bytes, are not bounded.
const maxCount = 10_000

// maxRecognized is how many names are remembered for which a plugin answers: a plugin may answer
// for any name that pods' authors make up.
const maxRecognized = 1000

// maxReason is how long a reason may be that a plugin gives, in bytes: the API takes
// 1024 for a pod's event, with what others say.
const maxReason = 300

// judge asks whether the node, which may be imagined, fits the pod that ask is about.
func (a *deviceCache) judge(name string, n *host.Node, r *request, ask *host.Ask) verdict {
	if n == nil {
		a.mu.RLock()
		why := a.unusable[name]
		a.mu.RUnlock()
		if why == "" {
			why = "the node's devices are not known yet"
		}
		return verdict{reasons: []string{shorten(why, maxReason)}, hopeless: true}
	}
	var v verdict
	for _, asked := range r.asked {
		if reason := tooMany(n, asked); reason != "" {
			v.refuse(reason, true)
		}
	}
	if !v.fits() {
		return v // a plugin might count up to it
	}
	fit := ask.Fits(n)
	for _, reason := range fit.Reasons {
		v.faulted = v.faulted || reason.Fault != nil
		v.refuse(reason.Text, reason.Never || reason.Fault != nil || n.Holders() == 0)
	}
	if !fit.OK && v.fits() {
		v.refuse("a device scheduler plugin refuses the node", n.Holders() == 0)
	}
	if !v.fits() {
		return v
	}
	for _, asked := range r.asked {
		if asked.author && !a.recognizes(n, r, asked) {
			v.refuse(fmt.Sprintf("no device scheduler plugin answers for %s", asked), true)
			v.faulted = true // a plugin that comes may
			break            // to find that out takes several calls of each plugin
		}
	}
	v.score = fit.Score
	return v
}

func (v *verdict) refuse(reason string, hopeless bool) {
	reason = shorten(reason, maxReason)
	v.hopeless = v.hopeless || hopeless
	if !slices.Contains(v.reasons, reason) {
		v.reasons = append(v.reasons, reason)
	}
}

// tooMany says that the node can never have as much; "" if it might.
func tooMany(n *host.Node, a asked) string {
	has, ok := n.Amount(a.name)
	switch {
	case ok && a.count > has:
		return fmt.Sprintf("%s is more than the node has", a)
	case !ok && a.count > maxCount && !isAmount(a.name):
		return fmt.Sprintf("%s is more than the %d that may be requested", a, maxCount)
	}
	return ""
}

// isAmount reports whether a request may be for more than can be counted one by
// one: what the group scheduler decides, a set of bits, or memory.
func isAmount(name types.ResourceName) bool {
	return resource.IsGroupResourceName(name) || resource.IsEnumResource(name) || strings.HasSuffix(strings.ToLower(string(name)), "memory")
}

// recognizes reports whether a device scheduler answers for the request, and remembers
// the names for which one does.
func (a *deviceCache) recognizes(n *host.Node, r *request, asked asked) bool {
	if resource.IsGroupResourceName(asked.name) { // known by the name, of which there are many
		return a.host.Recognizes(n, r.pod, asked.container, asked.name, !asked.author)
	}
	key := askedName{whole: asked.container == "", spec: !asked.author, name: asked.name}
	if _, known := a.recognized.Get(key); known {
		return true
	}
	if !a.host.Recognizes(n, r.pod, asked.container, asked.name, !asked.author) {
		return false
	}
	a.recognized.Add(key, nil)
	return true
}

// refuseUnassigned refuses a node on which kubecri would refuse a container: it requests, in its spec alone, a
// resource that kubecri gives out there, and no device scheduler plugin would assign it any. n is nil while
// there are no plugins.
func (a *deviceCache) refuseUnassigned(v *verdict, node *v1.Node, n *host.Node, r *request) {
	given := v1alpha1.PluginResources(node)
	for _, asked := range r.asked {
		if asked.author || !slices.Contains(given, v1.ResourceName(asked.name)) || r.authorAsks(asked.container) ||
			n != nil && a.recognizes(n, r, asked) {
			continue
		}
		v.refuse(fmt.Sprintf("no device scheduler plugin answers for %s: kubecri gives it only to containers that "+
			"such a plugin assigned it to", asked), true)
		v.faulted = true // a plugin that comes may
		return
	}
}

// status is the verdict as the framework wants it.
func (v verdict) status() *fwk.Status {
	switch {
	case v.fits():
		return nil
	case v.hopeless:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, v.reasons...)
	}
	return fwk.NewStatus(fwk.Unschedulable, v.reasons...)
}

func (v verdict) fits() bool { return len(v.reasons) == 0 }
