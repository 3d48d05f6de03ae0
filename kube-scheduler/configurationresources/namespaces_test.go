package configurationresources

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// restricted is cameras(1), of namespace default, for some namespaces.
func restricted(allowed *akriv0.AllowedNamespaces) *akriv0.Configuration {
	c := cameras(1)
	c.Spec.AllowedNamespaces = allowed
	return c
}

func namespace(name string, kv ...string) *v1.Namespace {
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(kv); i += 2 {
		ns.Labels[kv[i]] = kv[i+1]
	}
	return ns
}

// newRestrictedRig has one camera of a Configuration for some namespaces.
func newRestrictedRig(t *testing.T, allowed *akriv0.AllowedNamespaces, known ...*v1.Namespace) (*rig, cache.Indexer) {
	r := newRig(t)
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, ns := range known {
		if err := store.Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	r.namespaces = corelisters.NewNamespaceLister(store)
	r.cache.SetConfiguration(restricted(allowed))
	device(r.cache, "cam-000001", nil, "node-a")
	return r, store
}

// A pod gets no slot of a Configuration that does not allow its namespace, by whatever
// name it asks for one, and is told which Configuration says so.
func TestPodsOfNamespacesThatAreNotAllowed(t *testing.T) {
	teamA := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	for name, test := range map[string]struct {
		allowed   *akriv0.AllowedNamespaces
		namespace string
		want      string // "" for allowed
	}{
		"own":            {&akriv0.AllowedNamespaces{}, "default", ""},
		"named":          {&akriv0.AllowedNamespaces{Names: []string{"b"}}, "b", ""},
		"selected":       {&akriv0.AllowedNamespaces{Selector: teamA}, "a", ""},
		"all":            {nil, "b", ""},
		"neither":        {&akriv0.AllowedNamespaces{Names: []string{"b"}, Selector: teamA}, "c", "pods of namespace c may not use akri.sh/cam: spec.allowedNamespaces of Configuration default/cam does not allow"},
		"not known":      {&akriv0.AllowedNamespaces{Selector: teamA}, "new", "cannot be told whether pods of namespace new may use akri.sh/cam: read the labels of namespace new"},
		"not a selector": {&akriv0.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Like"}}}}, "c", "spec.allowedNamespaces.selector of Configuration default/cam"},
	} {
		for _, requested := range []v1.ResourceName{"akri.sh/cam", "akri.sh/cam-000001"} {
			t.Run(name+" "+string(requested), func(t *testing.T) {
				r, _ := newRestrictedRig(t, test.allowed, namespace("c"), namespace("a", "team", "a"))
				p := pod("p", "1")
				p.Namespace = test.namespace
				p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{requested: resource.MustParse("1")}}
				r.know(p)
				_, status := r.filter(p, "node-a")
				if test.want == "" {
					if !status.IsSuccess() {
						t.Errorf("refused: %v", status)
					}
					return
				}
				want := strings.Replace(test.want, "akri.sh/cam:", string(requested)+":", 1)
				if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), want) {
					t.Errorf("status %v, want UnschedulableAndUnresolvable with %q", status, want)
				}
				w, _ := r.cache.Queue.Get(p.UID)
				if got := w.Reason(); got != waitreason.NamespaceNotAllowed {
					t.Errorf("it waits for %s", waitreason.Names[got])
				}
			})
		}
	}
}

// A pod that was refused is tried again once it may be allowed, and only then.
func TestPodsAreTriedAgainWhenTheirNamespaceMayBeAllowed(t *testing.T) {
	selected := &akriv0.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	r, store := newRestrictedRig(t, selected, namespace("c"))
	p := pod("p", "1")
	p.Namespace = "c"
	r.know(p)
	r.refused(t, p, "node-a")
	r.requeued()
	r.cache.SetNamespace(namespace("other", "team", "a"))
	r.cache.SetConfiguration(restricted(selected))
	if activated := r.requeued(); len(activated) > 0 {
		t.Errorf("tried again for nothing: %v", activated)
	}
	labelled := namespace("c", "team", "a")
	if err := store.Update(labelled); err != nil {
		t.Fatal(err)
	}
	r.cache.SetNamespace(labelled)
	if activated := r.requeued(); !slices.Equal(activated, []string{"p"}) {
		t.Errorf("its namespace was labelled, and tried again are %v", activated)
	}
	r.cache.Queue.Try(p.UID)
	if _, status := r.filter(p, "node-a"); !status.IsSuccess() {
		t.Errorf("labelled: %v", status)
	}
	r.cache.SetConfiguration(restricted(&akriv0.AllowedNamespaces{Names: []string{"c"}}))
	if activated := r.requeued(); !slices.Equal(activated, []string{"p"}) {
		t.Errorf("spec.allowedNamespaces was changed, and tried again are %v", activated)
	}
}
