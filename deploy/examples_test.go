package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server takes every object of examples/, with the CRDs and policies, as a user applies them: without
// unknown fields, and without a word of warning.
func TestExamples(t *testing.T) {
	r := newRig(t)
	files, err := filepath.Glob("../examples/*/*.yaml")
	r.check(err)
	stories := map[string][]*unstructured.Unstructured{}
	for _, file := range files {
		story := filepath.Base(filepath.Dir(file))
		stories[story] = append(stories[story], r.objects(file)...)
	}
	if len(stories) < 10 {
		t.Errorf("found only %d stories", len(stories))
	}
	for story, objects := range stories {
		namespace := "example-of-" + story
		r.serviceAccount(namespace, "default")
		slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return order(a) - order(b) })
		for _, o := range objects {
			if o.GetNamespace() == "" && o.GetKind() != "Namespace" {
				o.SetNamespace(namespace)
			}
			if r.apply(story, o); o.GetKind() == "Namespace" {
				r.serviceAccount(o.GetName(), "default")
			}
		}
		for _, text := range r.warnings.texts {
			t.Errorf("%s: the API server warns: %s", story, text)
		}
		for _, o := range slices.Backward(objects) {
			r.check(client.IgnoreNotFound(r.akri.Delete(r.Context(), o, client.GracePeriodSeconds(0))))
		}
		r.warnings.texts = nil // of what is deleted
	}
}

// order has Namespaces come first, and Pods last.
func order(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace":
		return 0
	case "Pod":
		return 2
	}
	return 1
}

// apply creates the object. What the API server's plugins have to read first may take a moment: a Namespace, a
// PodGroup.
func (r *rig) apply(story string, o *unstructured.Unstructured) {
	r.Helper()
	r.await(story+"'s "+o.GetKind()+" "+o.GetName()+" to be created", func() (bool, string) {
		err := r.akri.Create(
			r.Context(),
			o,
			&client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}},
		)
		if err != nil && strings.Contains(err.Error(), "strict decoding error") {
			r.Fatalf("%s: %s %s: %v", story, o.GetKind(), o.GetName(), err)
		}
		if apierrors.IsAlreadyExists(err) { // two files have it, as it is before and after a change
			r.check(client.IgnoreNotFound(r.akri.Delete(r.Context(), o)))
		}
		return err == nil, fmt.Sprint(err)
	})
}

// objects reads a file of YAML documents.
func (r *rig) objects(file string) []*unstructured.Unstructured {
	r.Helper()
	text, err := os.ReadFile(file)
	r.check(err)
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			r.Fatalf("%s: %v", file, err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}
