package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// A process knows the pod that it runs in by its ServiceAccount's token.
func TestOwnPod(t *testing.T) {
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln\n"
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  apitypes.NamespacedName
	}{
		"on the host":         {nil, apitypes.NamespacedName{}},
		"in a pod":            {map[string]string{"namespace": "n\n", "token": token(`{"kubernetes.io":{"namespace":"n","pod":{"name":"p","uid":"u"}}}`)}, apitypes.NamespacedName{Namespace: "n", Name: "p"}},
		"a token for no pod":  {map[string]string{"namespace": "n", "token": token(`{"iss":"x"}`)}, apitypes.NamespacedName{Namespace: "n"}},
		"a token of no JSON":  {map[string]string{"namespace": "n", "token": token(`x`)}, apitypes.NamespacedName{Namespace: "n"}},
		"no token that reads": {map[string]string{"namespace": "n", "token": "x"}, apitypes.NamespacedName{Namespace: "n"}},
		"no token":            {map[string]string{"namespace": "n"}, apitypes.NamespacedName{Namespace: "n"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := ownPod(dir); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// A node says that its kubecri is a pod if others know the pod as kubecri's: the scheduler would give
// the node no pods with devices else, for good.
func TestKubecriNamespace(t *testing.T) {
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, labels := range map[string]map[string]string{"chart": {"app.kubernetes.io/name": "kubecri"}, "own": {"app": "kubecri"}} {
		if err := pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	for own, want := range map[apitypes.NamespacedName]string{
		{}:                               "",
		{Namespace: "n", Name: "chart"}:  "n",
		{Namespace: "n", Name: "own"}:    "",
		{Namespace: "n", Name: "unseen"}: "n",
		{Namespace: "n"}:                 "n", // which pod it is cannot be told
	} {
		if got := kubecriNamespace(own, corelisters.NewPodLister(pods))(t.Context()); got != want {
			t.Errorf("of pod %q the node says %q, want %q", own, got, want)
		}
	}
}
