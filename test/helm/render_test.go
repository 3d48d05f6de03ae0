package helm

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/helm/rig"
)

const (
	root  = "../.."
	chart = root + "/deploy/helm/kubeslot"
)

// helm is a helm program that asks no cluster.
type helm struct{ program, home string }

// newHelm builds helm 3 or 4, once for this machine.
func newHelm(t *testing.T, major int) helm {
	t.Helper()
	if major == 3 {
		testAll(t, "builds helm 3")
	}
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("needs helm, which takes minutes to build the first time: run `make test-e2e`")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	program, err := cluster.BuildHelm(ctx, root, major, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return helm{program, t.TempDir()}
}

func (h helm) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return rig.Helm(t.Context(), h.program, h.home, args...)
}

// render returns the objects that the chart makes with the values, hooks too.
func (h helm) render(t *testing.T, args ...string) objects {
	t.Helper()
	out, err := h.try(t, append([]string{"template", "kubeslot", chart, "--namespace", "kubeslot-system", "--kube-version", "1.37.2", "--set", "image.registry=reg.example/k"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, out)
}

type objects []*unstructured.Unstructured

// parse reads objects of YAML documents.
func parse(t *testing.T, text string) objects {
	t.Helper()
	var all objects
	for _, document := range strings.Split("\n"+text, "\n---") {
		object := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object) > 0 {
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
	return all
}

func key(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
}

func (all objects) get(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return all[i]
}

func (all objects) has(kind, name string) bool {
	return slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
}

// field returns the value at a path of names, nil if there is none.
func field(o *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return value
}

// container returns the container of a workload that has its name, or else the first.
func container(o *unstructured.Unstructured) map[string]any {
	for _, path := range [][]string{{"spec", "containers"}, {"spec", "template", "spec", "containers"}} {
		if list, ok := field(o, path...).([]any); ok {
			named := slices.IndexFunc(list, func(c any) bool { return c.(map[string]any)["name"] == o.GetName() })
			return list[max(named, 0)].(map[string]any)
		}
	}
	return nil
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
