package e2e

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeslot/kubeslot/test/cluster"
	kdtypes "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// way is how the API server knows kubecri of a node.
type way string

const (
	certificate way = "certificate" // of system:kubecri:<node>
	podToken    way = "token"       // of a pod of the ServiceAccount kubecri, on the node
)

// identity is node-a's credential of one way, with what deploy/ grants for it.
func (r *rig) identity(by way) *rest.Config {
	r.Helper()
	admin, err := shared.RESTConfig()
	r.check(err)
	if by == podToken {
		config := rest.AnonymousClientConfig(admin)
		config.BearerToken = r.tokenOfPodOn(nodeA)
		return config
	}
	config, err := clientcmd.BuildConfigFromFlags("", shared.ComponentKubeconfig(cluster.Kubecri, nodeA))
	r.check(err)
	config.Host = admin.Host // the way from the host
	return config
}

// system is the namespace of the chart, whose ServiceAccount kubecri the policies know.
const system = "kubeslot-system"

// tokenOfPodOn is the token of a pod of the ServiceAccount kubecri, which names the node.
func (r *rig) tokenOfPodOn(node string) string {
	r.Helper()
	ignore := func(err error) {
		r.Helper()
		if !apierrors.IsAlreadyExists(err) {
			r.check(err)
		}
	}
	_, err := kube.CoreV1().Namespaces().Create(r.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}, metav1.CreateOptions{})
	ignore(err)
	_, err = kube.CoreV1().ServiceAccounts(system).Create(r.ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kubecri"}}, metav1.CreateOptions{})
	ignore(err)
	_, err = kube.RbacV1().ClusterRoleBindings().Create(r.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubeslot:kubecri-of-pods"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubeslot:kubecri"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: system, Name: "kubecri"}}}, metav1.CreateOptions{})
	ignore(err)
	pods := kube.CoreV1().Pods(system)
	p := newPod("", node, nil)
	p.Name, p.GenerateName, p.Spec.ServiceAccountName = "", "kubecri-", "kubecri"
	p, err = pods.Create(r.ctx, p, metav1.CreateOptions{})
	r.check(err)
	r.Cleanup(func() {
		now := int64(0)
		if err := pods.Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			r.Logf("delete pod %s/%s: %v", system, p.Name, err)
		}
	})
	r.await("pod "+p.Name+" to be bound to "+node, func() (bool, string) {
		bound, err := pods.Get(r.ctx, p.Name, metav1.GetOptions{})
		r.check(err)
		return bound.Spec.NodeName == node, bound.Spec.NodeName
	})
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}}}
	token, err := kube.CoreV1().ServiceAccounts(system).CreateToken(r.ctx, "kubecri", request, metav1.CreateOptions{})
	r.check(err)
	return token.Status.Token
}

// assigned is the assignment of a pod of another scheduler, by another pod's: the same
// resources, and the slot after.
func (r *rig) assigned(of, name, uid, node string) map[string]string {
	r.Helper()
	info, err := assignment.DecodePod(r.pod(of).Annotations)
	r.check(err)
	info.Name, info.NodeName = name, node
	for _, c := range info.RunningContainers {
		for key, value := range c.AllocateFrom {
			s, err := slot.Parse(string(value))
			r.check(err)
			s.Index++
			c.AllocateFrom[key] = kdtypes.ResourceName(s.String())
		}
	}
	notes, err := assignment.Encode(info, uid, nil)
	r.check(err)
	return notes
}

// A Configuration says from where it may be used: the scheduler refuses other namespaces
// with the reason, and tries their pods again when they are allowed; kubecri refuses them
// whoever has assigned them slots.
func TestAllowedNamespaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("vault", 3, func(c *akriv0.Configuration) {
		c.Spec.AllowedNamespaces = &akriv0.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"vault": "open"}}}
	}, "vault0")
	r.create(newPod("own", nodeA, map[string]int64{"vault": 1}))
	r.agree("own", "vault", 1)

	other := *r
	other.ns = r.ns + "-other"
	_, err := kube.CoreV1().Namespaces().Create(r.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.ns}}, metav1.CreateOptions{})
	r.check(err)
	t.Cleanup(other.cleanUp)
	r.await("the other namespace's default service account", func() (bool, string) {
		_, err := kube.CoreV1().ServiceAccounts(other.ns).Get(r.ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	other.create(newPod("visitor", nodeA, map[string]int64{"vault": 1}))
	refusal := fmt.Sprintf("pods of namespace %s may not use akri.sh/vault: spec.allowedNamespaces of Configuration %s/vault does not allow the namespace", other.ns, r.ns)
	other.awaitPending("visitor", refusal)

	// Another scheduler that assigns a slot nevertheless.
	p := newPod("smuggled", "", map[string]int64{"vault": 1})
	p.Spec.SchedulerName = "another"
	p = other.create(p)
	notes := r.assigned("own", "smuggled", string(p.UID), nodeB)
	r.check(kube.CoreV1().Pods(other.ns).Bind(r.ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, Annotations: notes},
		Target: v1.ObjectReference{Kind: "Node", Name: nodeB}}, metav1.CreateOptions{}))
	other.awaitEvent("smuggled", "whose spec.allowedNamespaces does not allow namespace "+other.ns)
	other.delete("smuggled")

	label := `{"metadata":{"labels":{"vault":"open"}}}`
	_, err = kube.CoreV1().Namespaces().Patch(r.ctx, other.ns, "application/merge-patch+json", []byte(label), metav1.PatchOptions{})
	r.check(err)
	other.agree("visitor", "vault", 1)
	r.agree("own", "vault", 1)
}
