package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A camera that asks for a login: with the wrong password it is found, and its address
// unknown. Who puts the right one into the Secret restarts nothing: the Instance gets
// the address, and a pod that uses the camera is told.
func TestCredentialsFromSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const uuid = "22222222-3333-4444-5555-666666666666" // other tests have cameras too
	ip := r.machine("gate").IP
	r.run(cluster.Program{Name: "onvifcamera", On: "gate",
		Argv: []string{r.program("onvifcamera"), "--interface=eth0", "--uuid=" + uuid, "--user=operator", "--password=right"}})
	meta := metav1.ObjectMeta{Name: "camera-login"}
	_, err := kube.CoreV1().Secrets(r.ns).Create(r.ctx, &v1.Secret{ObjectMeta: meta, StringData: map[string]string{"password": "wrong"}}, metav1.CreateOptions{})
	r.check(err)
	// Kubeslot ships no rights on Secrets.
	_, err = kube.RbacV1().Roles(r.ns).Create(r.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{meta.Name}, Verbs: []string{"get", "list", "watch"}}}}, metav1.CreateOptions{})
	r.check(err)
	_, err = kube.RbacV1().RoleBindings(r.ns).Create(r.ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:kubecris"}}}, metav1.CreateOptions{})
	r.check(err)

	user := "operator"
	r.check(r.createConfiguration("gate", akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{
		Name: "onvif", DiscoveryDetails: "uuids: {items: [" + uuid + "]}", DiscoveryProperties: []akriv0.DiscoveryProperty{
			{Name: "username_default", Value: &user},
			{Name: "password_default", ValueFrom: &akriv0.DiscoveryPropertySource{SecretKeyRef: &akriv0.DiscoveryPropertyKeySelector{
				Namespace: r.ns, Name: meta.Name, Key: "password"}}},
		}}}))
	in := r.awaitInstance("gate", nodeA, nodeB)
	const property = "ONVIF_DEVICE_IP_ADDRESS"
	if got, ok := in.Spec.BrokerProperties[property]; ok {
		t.Errorf("with the wrong password %s is %q", property, got)
	}
	r.create(newPod("viewer", nodeA, map[string]int64{"gate": 1}))
	r.agree("viewer", "gate", 1)

	_, err = kube.CoreV1().Secrets(r.ns).Patch(r.ctx, meta.Name, types.MergePatchType, []byte(`{"stringData":{"password":"right"}}`), metav1.PatchOptions{})
	r.check(err)
	r.await("the Instance to have the camera's address", func() (bool, string) {
		list := r.instances("gate")
		return len(list) == 1 && list[0].Name == in.Name && list[0].Spec.BrokerProperties[property] == ip, fmt.Sprint(list)
	})
	r.awaitEvent("viewer", "DeviceChanged", property)
	r.delete("viewer")
	r.create(newPod("next", nodeB, map[string]int64{"gate": 1}))
	r.agree("next", "gate", 1)
	if env := r.env("next"); env[property] != ip {
		t.Errorf("the next pod has %s=%q, want %s", property, env[property], ip)
	}
}
