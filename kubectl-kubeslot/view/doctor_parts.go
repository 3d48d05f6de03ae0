package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
)

// Labels of the chart's pods.
const (
	partOfLabel    = "app.kubernetes.io/part-of"
	partLabel      = "app.kubernetes.io/name"
	versionLabel   = "app.kubernetes.io/version"
	partOfKubeslot = "kubeslot"
)

// upgrading is how long an upgrade of all nodes may take.
const upgrading = 15 * time.Minute

// notInstalled reports whether nothing of Kubeslot is there but its definitions, and what was made of them.
func (v *View) notInstalled() bool {
	c := v.objects.Cluster
	if c == nil || len(v.objects.Slices) > 0 || len(c.Roles) > 0 {
		return false
	}
	for name := range policies {
		if slices.Contains(c.Policies, name) {
			return false
		}
	}
	return !slices.ContainsFunc(v.objects.Pods, func(pod corev1.Pod) bool { return pod.Labels[partOfLabel] == partOfKubeslot && !ended(&pod) })
}

// examineParts looks at Kubeslot's own pods, where it runs in pods: those that are not
// ready, and parts that an upgrade has left behind.
func (v *View) examineParts(f *findings, now time.Time) {
	versions := map[string][]string{} // to the parts of it
	recent := false
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		part := pod.Labels[partLabel]
		if pod.Labels[partOfLabel] != partOfKubeslot || part == "" || ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		age := now.Sub(pod.CreationTimestamp.Time)
		recent = recent || age < upgrading && age > -settling
		if !podutils.IsPodReady(pod) && settled(pod.CreationTimestamp.Time, now) &&
			v.kubecris().seen[pod.Spec.NodeName] != pod { // which examineNodes tells
			f.add(podObject(pod), "PartNotReady", "it is Kubeslot's %s, and not Ready: see kubectl describe pod and its log", part)
		}
		if version := pod.Labels[versionLabel]; version != "" && !slices.Contains(versions[version], part) {
			versions[version] = append(versions[version], part)
		}
	}
	if len(versions) < 2 || recent {
		return
	}
	var texts []string
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		slices.Sort(versions[version])
		texts = append(texts, version+" ("+strings.Join(versions[version], ", ")+")")
	}
	f.add("cluster", "VersionsDiffer", "parts of several versions of Kubeslot have run for %s: %s; finish the upgrade", upgrading, strings.Join(texts, ", "))
}
