package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// deploy puts what deploy/ has into the story, but for objects of the name.
func (s *story) deploy(t *testing.T, without string) {
	t.Helper()
	for _, folder := range []string{"crds", "rbac", "policies"} {
		files, err := filepath.Glob(filepath.Join("../../deploy", folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("deploy/%s has %d files: %v", folder, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
				u := &unstructured.Unstructured{}
				if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				if u.GetName() != without {
					s.set(u.GetKind()+"/"+u.GetName(), typed(t, u))
				}
			}
		}
	}
}

// typed is the object as the clients have its kind: definitions are read as they are.
func typed(t *testing.T, u *unstructured.Unstructured) runtime.Object {
	t.Helper()
	var o runtime.Object
	switch u.GetKind() {
	case "ClusterRole":
		o = &rbacv1.ClusterRole{}
	case "ClusterRoleBinding":
		o = &rbacv1.ClusterRoleBinding{}
	case "Role":
		o = &rbacv1.Role{}
	case "RoleBinding":
		o = &rbacv1.RoleBinding{}
	case "ValidatingAdmissionPolicy":
		o = &admissionregistrationv1.ValidatingAdmissionPolicy{}
	case "ValidatingAdmissionPolicyBinding":
		o = &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	default:
		return u
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
	}
	return o
}
