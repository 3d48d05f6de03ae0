package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	kubernetes "k8s.io/component-base/version"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/version"
)

// Cluster is what doctor looks at besides devices and pods.
type Cluster struct {
	// Version is the API server's, such as v1.37.2.
	Version string
	// Policies are the ValidatingAdmissionPolicies that a binding enforces.
	Policies []string
	// Definitions are the CustomResourceDefinitions of Kubeslot's names that are there.
	Definitions map[string]*unstructured.Unstructured
	// Roles are the rules of Kubeslot's ClusterRoles that are there, by name, and Bound
	// the names of those that a ClusterRoleBinding gives to somebody.
	Roles map[string][]rbacv1.PolicyRule
	Bound []string
}

// oldest is the oldest minor version of Kubernetes that Kubeslot works with.
var oldest = utilversion.MajorMinor(1, version.OldestKubernetesMinor)

// maxKubeletSkew is how many minor versions a kubelet may be older than the API server, and
// maxSchedulerSkew how many a scheduler may (Kubernetes' version skew policy).
const maxKubeletSkew, maxSchedulerSkew = 3, 1

// draPolicies are for clusters with a Configuration of allocator DRA: one without DRA's API cannot have them.
var draPolicies = []string{"kubeslot-allowed-namespaces", "kubeslot-controller-dra", "kubeslot-resourceslices"}

// policies are those of deploy/policies that refuse, each with what anybody may do without it.
var policies = map[string]string{
	"kubeslot-allowed-namespaces": "pods of all namespaces can get devices by ResourceClaims",
	"kubeslot-controller-dra": "who has the controller's credential can write the ResourceSlices of all DRA " +
		"drivers",
	"kubeslot-assignment": "who may update a pod can give it slots",
	"kubeslot-brokers":    "who may write Configurations can run pods as any ServiceAccount",
	"kubeslot-controller": "who has the controller's credential can run pods in every namespace",
	"kubeslot-controller-configurations": "who has the controller's credential can change Configurations, in every " +
		"namespace",
	"kubeslot-kubecri-node":    "one node's kubecri can write another's status",
	"kubeslot-kubecri-objects": "one node's kubecri can report devices and claim slots for another",
	"kubeslot-kubecri-leases":  "one node's kubecri can take over discovery from others",
	"kubeslot-resourceslices":  "one node's kubelet can publish devices that ResourceClaims get instead of real ones",
	"kubeslot-release":         "who may delete SlotClaims can release slots that containers use",
}

// roles are ClusterRoles of deploy/rbac that programs run with. Where a part is not used,
// or runs with a role of one's own, its role need not be there.
var roles = map[string]struct {
	of, without string
	missed      func(v *View) bool
}{
	"kubeslot:kube-scheduler": {"the scheduler", "the scheduler does not see the devices, and pods that ask for them stay Pending", (*View).assigns},
	"kubeslot:kubecri": {"kubecri", "no node can report devices or claim slots", func(v *View) bool {
		return len(v.objects.Slices) == 0 && len(v.objects.Configurations) > 0
	}},
	"kubeslot:controller": {"the controller", "nobody writes Instances", func(v *View) bool {
		return len(v.devices) > 0 && len(v.objects.Instances) == 0
	}},
	"kubeslot:controller-brokers": {"the controller", "no brokers are run", func(v *View) bool {
		return slices.ContainsFunc(v.objects.Configurations, func(c akriv0.Configuration) bool {
			return c.Spec.BrokerSpec != nil
		})
	}},
	"kubeslot:controller-services": {"the controller", "brokers have no Services", func(v *View) bool {
		return slices.ContainsFunc(v.objects.Configurations, func(c akriv0.Configuration) bool {
			return c.Spec.InstanceServiceSpec != nil || c.Spec.ConfigurationServiceSpec != nil
		})
	}},
}

// assigns reports whether there are nodes whose slots Kubeslot's scheduler gives out.
func (v *View) assigns() bool {
	for node := range v.reporting {
		if !v.choosesSlots(node) {
			return true
		}
	}
	return false
}

// usesDRA reports whether DRA gives devices of a Configuration, or did until a moment ago.
func (v *View) usesDRA() bool {
	return slices.ContainsFunc(v.objects.Configurations, func(c akriv0.Configuration) bool { return !c.GivesSlots() })
}

// examineCluster looks at versions, definitions, policies and permissions, where they were
// read.
func (v *View) examineCluster(f *findings) {
	c := v.objects.Cluster
	if c == nil {
		return
	}
	c.examineVersion(f, kubernetes.Get().GitVersion)
	v.examineEmulation(f, kubernetes.Get().GitVersion)
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if !slices.Contains(c.Policies, name) && (!slices.Contains(draPolicies, name) || v.usesDRA()) {
			f.add("validatingadmissionpolicy/"+name, "NoPolicy", "it is not there, or no binding enforces it: %s. Apply deploy/policies, or run helm upgrade", policies[name])
		}
	}
	want, err := wanted()
	if err != nil {
		f.add("cluster", "Unreadable", "what Kubeslot needs cannot be read: %v; report this", err)
		return
	}
	for _, definition := range want.definitions {
		c.examineDefinition(f, definition)
	}
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		v.examineRole(f, name, want.roles[name])
	}
}

// examineVersion compares the API server's version with what this Kubeslot is made of.
func (c *Cluster) examineVersion(f *findings, ours string) {
	server, made := parseVersion(c.Version), parseVersion(ours)
	if server == nil {
		return
	}
	if server.LessThan(oldest) {
		f.add("cluster", "OldVersion", "its API server is %s, and Kubeslot works from %s on: upgrade the cluster", c.Version, oldest)
	}
	if made != nil && made.Major() == server.Major() && made.Minor() > 0 &&
		server.Minor() > made.Minor()+maxSchedulerSkew {
		f.add("cluster", "NewVersion", "its API server is %s, and this Kubeslot is made of Kubernetes %s: a scheduler may be %d minor version older than the API server. Upgrade Kubeslot",
			c.Version, ours, maxSchedulerSkew)
	}
}

// examineEmulation finds schedulers of ours that ask an older API server for what it does
// not have. Those that do not run in the chart's pods are not known.
func (v *View) examineEmulation(f *findings, ours string) {
	server, made := parseVersion(v.objects.Cluster.Version), parseVersion(ours)
	if server == nil || made == nil || server.Major() != made.Major() || server.Minor() >= made.Minor() {
		return
	}
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if pod.Labels[partOfLabel] != partOfKubeslot || pod.Labels[partLabel] != "kube-scheduler" || ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--emulated-version") })
		}) {
			f.add(podObject(pod), "NotEmulated", "it is a scheduler of Kubernetes %s, newer than the API server %s: it needs --emulated-version=%d.%d, or it may wait for APIs that are not there. Run helm upgrade, which sets it",
				ours, v.objects.Cluster.Version, server.Major(), server.Minor())
		}
	}
}

// examineKubelet compares a kubelet's version with the API server's.
func (v *View) examineKubelet(f *findings, node, text string) {
	kubelet := parseVersion(text)
	if kubelet == nil {
		return
	}
	if kubelet.LessThan(oldest) {
		f.add("node/"+node, "OldVersion", "its kubelet is %s, and Kubeslot works from %s on: upgrade the node", text, oldest)
		return
	}
	if v.objects.Cluster == nil {
		return
	}
	server := parseVersion(v.objects.Cluster.Version)
	if server == nil || server.Major() != kubelet.Major() {
		return
	}
	switch {
	case kubelet.Minor() > server.Minor():
		f.add("node/"+node, "VersionSkew", "its kubelet is %s, newer than the API server %s, which Kubernetes does not support: upgrade the control plane first", text, v.objects.Cluster.Version)
	case kubelet.Minor()+maxKubeletSkew < server.Minor():
		f.add("node/"+node, "VersionSkew", "its kubelet is %s, more than %d minor versions older than the API server %s, which Kubernetes does not support: upgrade the node",
			text, maxKubeletSkew, v.objects.Cluster.Version)
	}
}

// parseVersion is nil of what is no version.
func parseVersion(text string) *utilversion.Version {
	parsed, _ := utilversion.ParseGeneric(strings.TrimPrefix(text, "v"))
	return parsed
}

// examineDefinition looks whether the API server keeps all that this Kubeslot writes.
func (c *Cluster) examineDefinition(f *findings, want *unstructured.Unstructured) {
	object := "customresourcedefinition/" + want.GetName()
	have := c.Definitions[want.GetName()]
	if have == nil {
		f.add(object, "NoDefinition", "it is not there: apply deploy/crds, or run helm upgrade")
		return
	}
	for _, version := range versionsOf(want) {
		served := false
		for _, other := range versionsOf(have) {
			if other["name"] != version["name"] || other["served"] != true {
				continue
			}
			served = true
			if lacks := lacking(schemaOf(version), schemaOf(other), ""); len(lacks) > 0 {
				f.add(object, "OldDefinition", "it does not know %s: it is Akri's, or an older Kubeslot's, and the API server drops what it does not know. Apply deploy/crds, or run helm upgrade", some(lacks, 3))
			}
		}
		if !served {
			f.add(object, "OldDefinition", "it does not serve version %v: apply deploy/crds, or run helm upgrade", version["name"])
		}
	}
}

func versionsOf(definition *unstructured.Unstructured) []map[string]any {
	all, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	var versions []map[string]any
	for _, v := range all {
		if version, ok := v.(map[string]any); ok {
			versions = append(versions, version)
		}
	}
	return versions
}

func schemaOf(version map[string]any) map[string]any {
	schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
	return schema
}

// lacking returns the paths of fields that the one schema has and the other would drop.
func lacking(want, have map[string]any, path string) []string {
	if have["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	fields, _ := want["properties"].(map[string]any)
	known, _ := have["properties"].(map[string]any)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field, _ := fields[name].(map[string]any)
		other, there := known[name].(map[string]any)
		at := strings.TrimPrefix(path+"."+name, ".")
		if !there {
			all = append(all, at)
			continue
		}
		all = append(all, lacking(field, other, at)...)
	}
	for _, of := range []string{"items", "additionalProperties"} {
		inner, _ := want[of].(map[string]any)
		if other, there := have[of].(map[string]any); there && inner != nil {
			all = append(all, lacking(inner, other, path+"[]")...)
		}
	}
	return all
}

// examineRole looks whether a program has the permissions that it needs.
func (v *View) examineRole(f *findings, name string, want []rbacv1.PolicyRule) {
	c, object := v.objects.Cluster, "clusterrole/"+name
	role := roles[name]
	have, there := c.Roles[name]
	if !there {
		if role.missed(v) {
			f.add(object, "NoRole", "it is not there, so that %s. Apply deploy/rbac, or run helm upgrade", role.without)
		}
		return
	}
	if covers, missing := rbacvalidation.Covers(have, want); !covers {
		f.add(object, "OldRole", "it lacks %s, which %s needs. Apply deploy/rbac, or run helm upgrade", some(rights(missing), 3), role.of)
	}
	if !slices.Contains(c.Bound, name) {
		f.add(object, "RoleNotBound", "no ClusterRoleBinding gives it to anybody, so that %s. Apply deploy/rbac, or run helm upgrade", role.without)
	}
}

// rights are rules as a reader has them: "create slotclaims.kubeslot.io".
func rights(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				text := fmt.Sprintf("%s %s", strings.Join(r.Verbs, ","), resource)
				if group != "" {
					text += "." + group
				}
				all = append(all, text)
			}
		}
	}
	slices.Sort(all)
	return all
}
