package view

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubeslot/kubeslot/deploy"
)

// manifests are what a cluster is compared with: those of this program's own version.
type manifests struct {
	definitions []*unstructured.Unstructured // CustomResourceDefinitions, in order of their names
	roles       map[string][]rbacv1.PolicyRule
}

// wanted reads the manifests that this program was built with. A test holds that they can
// be read.
var wanted = sync.OnceValues(func() (manifests, error) {
	m := manifests{roles: map[string][]rbacv1.PolicyRule{}}
	err := fs.WalkDir(deploy.Manifests, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := deploy.Manifests.ReadFile(path)
		if err != nil {
			return err
		}
		return m.add(path, text)
	})
	return m, err
})

// add reads a file's objects.
func (m *manifests) add(path string, text []byte) error {
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("deploy/%s: %w", path, err)
		}
		switch o.GetKind() {
		case "CustomResourceDefinition":
			m.definitions = append(m.definitions, o)
		case "ClusterRole":
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				return fmt.Errorf("deploy/%s: ClusterRole %s: %w", path, o.GetName(), err)
			}
			m.roles[role.Name] = role.Rules
		}
	}
}

// Definitions are the names of Kubeslot's CustomResourceDefinitions.
func Definitions() []string {
	m, _ := wanted() // held by a test
	var names []string
	for _, d := range m.definitions {
		names = append(names, d.GetName())
	}
	return names
}

// Roles are the names of the ClusterRoles that Kubeslot's programs run with.
func Roles() []string { return slices.Sorted(maps.Keys(roles)) }
