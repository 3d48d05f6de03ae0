package deploy

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// The clean-up after `helm uninstall` deletes the Leases of nodes' kubecris, and no kubelet's.
func TestUninstallDeletesTheKubecrisLeasesAlone(t *testing.T) {
	p := policies(t, "helm/uninstall-leases.yaml")["kubeslot-uninstall"]
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
