package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// versions are the resource versions of what our components write.
func (r *rig) versions() map[string]string {
	r.Helper()
	versions := map[string]string{}
	note := func(kind string, o metav1.Object) { versions[kind+"/"+o.GetName()] = o.GetResourceVersion() }
	reported, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	for i := range reported.Items {
		note("deviceslices", &reported.Items[i])
	}
	claims, err := akri.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	for i := range claims.Items {
		note("slotclaims", &claims.Items[i])
	}
	instances, err := akri.AkriV0().Instances(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	for i := range instances.Items {
		note("instances", &instances.Items[i])
	}
	configurations, err := akri.AkriV0().Configurations(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	for i := range configurations.Items {
		note("configurations", &configurations.Items[i])
	}
	return versions
}

// unchanged watches for the time that no resource version changes.
func (r *rig) unchanged(when string, window time.Duration, versions map[string]string) {
	r.Helper()
	for end := time.Now().Add(window); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if now := r.versions(); !maps.Equal(now, versions) {
			r.Fatalf("%s: resource versions are %v, were %v", when, now, versions)
		}
	}
}

// steadyWindow is how long nothing may be written: a minute, or SOAK's time.
func steadyWindow() (time.Duration, error) {
	if soak := os.Getenv("SOAK"); soak != "" {
		return time.ParseDuration(soak)
	}
	return time.Minute, nil
}

// settleWindow without a write is longer than any of our components waits to write
// several changes at once.
const settleWindow = 3 * time.Second

// writesNothing checks that kubecri and the controller, with devices of every handler
// found and in use, write nothing at all.
func (r *rig) writesNothing() {
	r.Helper()
	window, err := steadyWindow()
	r.check(err)
	r.awaitFormerAmountsGone()
	r.settle()
	before, versions := len(r.writes(0)), r.versions()
	r.unchanged(fmt.Sprintf("in %v with nothing to do", window), window, versions)
	if now := r.writes(before); len(now) > 0 {
		r.Errorf("in %v with nothing to do our components wrote: %q", window, now)
	}
}

// awaitFormerAmountsGone waits until the nodes advertise nothing that only former tests
// had: kubecri lowers an amount half a minute after there is less.
func (r *rig) awaitFormerAmountsGone() {
	r.Helper()
	r.await("the nodes to advertise no more than there is", func() (bool, string) {
		list, err := akri.AkriV0().Configurations(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		want := map[string]int64{} // by node and resource
		for _, c := range list.Items {
			for _, d := range r.devices(c.Name) {
				for _, node := range d.nodes {
					want[node+" akri.sh/"+c.Name] += int64(c.Spec.Slots())
					want[node+" akri.sh/"+d.name] += int64(c.Spec.Slots())
				}
			}
		}
		nodes, err := kube.CoreV1().Nodes().List(r.ctx, metav1.ListOptions{})
		r.check(err)
		for _, n := range nodes.Items {
			for name, amount := range n.Status.Allocatable {
				if strings.HasPrefix(string(name), "akri.sh/") && amount.Value() > want[n.Name+" "+string(name)] {
					return false, fmt.Sprintf("%s has %s of %s", n.Name, amount.String(), name)
				}
			}
		}
		return true, ""
	})
}

// settle waits until our components write nothing more.
func (r *rig) settle() {
	r.Helper()
	r.await("our components to write nothing more", func() (bool, string) {
		before := len(r.writes(0))
		time.Sleep(settleWindow)
		all := r.writes(0)
		return len(all) == before, fmt.Sprint(all[before:])
	})
}

// writes lists the writes of our components, without the first ones, and without the
// leases that say that a process lives.
func (r *rig) writes(after int) []string {
	r.Helper()
	var writes []string
	for _, e := range auditEvents(r) {
		if ours(e.User.Username) && e.UserAgent != rogueAgent && e.ObjectRef.Resource != "leases" {
			writes = append(writes, fmt.Sprintf("%s: %s %s %s/%s", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name))
		}
	}
	return slices.Clone(writes[after:])
}
