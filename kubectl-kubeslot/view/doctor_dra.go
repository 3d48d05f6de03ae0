package view

import (
	"maps"
	"slices"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// examineDRA finds what keeps DRA from giving the devices of Configurations, and what it has left.
func (v *View) examineDRA(f *findings) {
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if pod.Spec.NodeName != "" || ended(pod) {
			continue
		}
		if w := v.givenByDRA(pod); w != nil {
			f.add(podObject(pod), w.Reason, "it requests akri.sh/%s, and %s: %s", w.Resource, w.Why, w.Needs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.configurations)) {
		c := v.configurations[name]
		if !c.Spec.IsDRA() {
			continue
		}
		if class := v.deviceClass(name); class != nil && class.Labels[v1alpha1.ConfigurationLabel] != name {
			f.add("deviceclass/"+class.Name, "DeviceClassTaken",
				"it has the name of the DeviceClass of Configuration %s/%s, and is not Kubeslot's (it lacks the label "+
					"%s=%s): delete it, and the controller creates its own",
				c.Namespace, name, v1alpha1.ConfigurationLabel, name)
		}
		if v.objects.Cluster == nil {
			continue
		}
		if server := parseVersion(v.objects.Cluster.Version); server != nil && server.LessThan(v1alpha1.DRAMinVersion) {
			f.add("configuration/"+c.Namespace+"/"+name, "DRANotServed",
				"it has spec.allocator DRA, which needs Kubernetes %s, and the API server is %s: upgrade the cluster, "+
					"or set spec.allocator to Slots", v1alpha1.DRAMinVersion, v.objects.Cluster.Version)
		}
	}
}

// resourceClaimGone reports whether the ResourceClaim that has the slot is known to be gone.
func (v *View) resourceClaimGone(c *v1alpha1.SlotClaim) bool {
	return v.seesResourceClaimOf(c) && v.resourceClaimOf(c) == nil
}
