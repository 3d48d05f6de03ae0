package deploy

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Of DRA's objects it deletes those of Kubeslot's driver, and no other's.
func TestUninstallDeletesItsDriversObjectsAlone(t *testing.T) {
	p := policies(t, "helm/uninstall-policy.yaml")["kubeslot-uninstall"]
	const (
		slices, classes = "only the ResourceSlices of driver", "only the DeviceClasses <Configuration>.slots"

		cam   = "metadata: {name: cam.slots.kubeslot.io, labels: {kubeslot.io/configuration: cam}}\nspec: {}"
		other = "metadata: {name: mine, labels: {kubeslot.io/configuration: cam}}\nspec: {}"
	)
	slice := func(driver string) string { return "metadata: {name: it}\nspec: {driver: " + driver + "}" }
	for name, tc := range map[string]struct{ kind, old, want string }{
		"a slice":                {"ResourceSlice", slice("slots.kubeslot.io"), ""},
		"another driver's slice": {"ResourceSlice", slice("gpu.example.com"), slices},
		"a class":                {"DeviceClass", cam, ""},
		"a class of a user":      {"DeviceClass", other, classes},
		"a class without labels": {"DeviceClass", "metadata: {name: cam.slots.kubeslot.io}\nspec: {}", classes},
	} {
		t.Run(name, func(t *testing.T) {
			resource := map[string]string{"ResourceSlice": "resourceslices", "DeviceClass": "deviceclasses"}[tc.kind]
			r := request{by: account("kubeslot-system", "kubeslot-uninstall", ""), kind: tc.kind, old: tc.old}
			r.resource = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: resource}
			expect(t, p, r, tc.want)
			r.by = &user.DefaultInfo{Name: "admin"}
			expect(t, p, r, "")
		})
	}
}

// The clean-up after `helm uninstall` deletes the Leases of nodes' kubecris, and no kubelet's.
func TestUninstallDeletesTheKubecrisLeasesAlone(t *testing.T) {
	p := policies(t, "helm/uninstall-policy.yaml")["kubeslot-uninstall"]
	job := account("kubeslot-system", "kubeslot-uninstall", "")
	const refused = "may delete only the Leases kubecri.<node>"
	lease := func(namespace, name, spec string) string {
		return "metadata: {namespace: " + namespace + ", name: " + name + "}\nspec: {" + spec + "}"
	}
	kubelets := lease("kube-node-lease", "a", "holderIdentity: a")
	for name, tc := range map[string]struct {
		by        *user.DefaultInfo
		old, want string
	}{
		"a kubecri's": {job, lease("kube-node-lease", "kubecri.a", "holderIdentity: a"), ""},
		"a kubelet's": {job, kubelets, refused},
		"a kubelet's of node kubecri.a": {job, lease("kube-node-lease", "kubecri.a", "holderIdentity: kubecri.a"),
			refused},
		"of nobody":                       {job, lease("kube-node-lease", "a", ""), refused},
		"of an election, as RBAC says":    {job, lease("kube-system", "kubeslot-controller", "holderIdentity: x"), ""},
		"a kubelet's, by somebody else":   {&user.DefaultInfo{Name: "admin"}, kubelets, ""},
		"a kubelet's, of another account": {account("other", "kubeslot-uninstall", ""), kubelets, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, p, request{by: tc.by, resource: leasesResource, kind: "Lease", old: tc.old}, tc.want)
		})
	}
}
