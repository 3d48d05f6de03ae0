package deploy

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/permissions"
)

// kubecri may do what is in the tables and nothing else, before the policies narrow it to
// its own node.
func TestWhatKubecriMayDo(t *testing.T) {
	permissions.Only(t, permissionsOf(t, "rbac/kubecri.yaml"), kubecri("node-a"), permissions.Kubecri)
	permissions.Only(t, permissionsOf(t, "kubelet-identity/rbac.yaml"), kubelet("node-a"), permissions.Kubelet)
	for _, who := range []user.Info{account("default", "kubecri", "node-a"), &user.DefaultInfo{Name: "eve", Groups: []string{"system:authenticated"}}} {
		if permissions.Allows(t, permissionsOf(t, "rbac/kubecri.yaml"), who, "get", "pods", "default", "any") {
			t.Errorf("%s has kubecri's rights", who.GetName())
		}
	}
}

// Each field of a Node's status but those that are kubecri's is compared: a field that
// Kubernetes adds fails here until the policy has it.
func TestKubecriChangesNoOtherFieldOfANodesStatus(t *testing.T) {
	p := policies(t, "policies/kubecri.yaml")["kubeslot-kubecri-node"]
	before := corev1.Node{}
	before.Name = "node-a"
	old, err := yaml.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	kind := reflect.TypeFor[corev1.NodeStatus]()
	for i := range kind.NumField() {
		field, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if field == "capacity" || field == "allocatable" || field == "conditions" {
			continue // see TestKubecriWritesItsOwnNodesTotals
		}
		t.Run(field, func(t *testing.T) {
			after := before
			fill(t, reflect.ValueOf(&after.Status).Elem().Field(i))
			object, err := yaml.Marshal(after)
			if err != nil {
				t.Fatal(err)
			}
			r := request{by: kubecri("node-a"), resource: nodesResource, kind: "Node", subresource: "status", object: string(object), old: string(old)}
			expect(t, p, r, "only the capacity, the allocatable and the conditions kubeslot.io/* of a node's status")
		})
	}
}

// fill makes the value another than zero, so that it is written.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Struct:
		fill(t, v.Field(0))
	default:
		t.Fatalf("a field of kind %s: teach this test about it", v.Kind())
	}
}
