package helm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	openapi "github.com/google/gnostic-models/openapiv2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/util/proto/validation"
)

// schemas are those that Kubernetes publishes of its kinds.
type schemas map[schema.GroupVersionKind]proto.Schema

// publishedSchemas reads api/openapi-spec/swagger.json of the Kubernetes that this is built with.
func publishedSchemas(t *testing.T) schemas {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "api/openapi-spec/swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi.ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	all := schemas{}
	for _, name := range models.ListModels() {
		model := models.LookupModel(name)
		kinds, _ := model.GetExtensions()["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			fields, _ := kind.(map[any]any)
			field := func(name string) string { text, _ := fields[name].(string); return text }
			all[schema.GroupVersionKind{Group: field("group"), Version: field("version"), Kind: field("kind")}] = model
		}
	}
	return all
}

// check says which fields of an object are none, are missing, or are of another type. Kinds that are not
// Kubernetes' own have no schema here.
func (s schemas) check(o *unstructured.Unstructured) []error {
	model := s[o.GroupVersionKind()]
	if model == nil {
		if group := o.GroupVersionKind().Group; !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") {
			return []error{fmt.Errorf("Kubernetes publishes no schema of %s", o.GroupVersionKind())}
		}
		return nil
	}
	return validation.ValidateModel(o.Object, model, o.GetKind())
}
