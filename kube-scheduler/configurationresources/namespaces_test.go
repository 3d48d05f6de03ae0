package configurationresources

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
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
	r, namespaces := newRig(t), store(known...)
	r.namespaces = corelisters.NewNamespaceLister(namespaces)
	r.cache.SetConfiguration(restricted(allowed))
	device(r.cache, "cam-000001", nil, "node-a")
	return r, namespaces
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
		for _, requested := range []string{"cam", "cam-000001"} {
			t.Run(name+" "+requested, func(t *testing.T) {
				r, _ := newRestrictedRig(t, test.allowed, namespace("c"), namespace("a", "team", "a"))
				p := asks("p", requested, "1")
				p.Namespace = test.namespace
				r.know(p)
				if test.want == "" {
					r.fits(p, "node-a")
					return
				}
				_, status := r.filter(p, "node-a")
				want := strings.Replace(test.want, "akri.sh/cam:", "akri.sh/"+requested+":", 1)
				wantStatus(t, "PreFilter", status, fwk.UnschedulableAndUnresolvable, want)
				w, _ := r.cache.Queue.Get(p.UID)
				if got := w.Reason(); got != waitreason.NamespaceNotAllowed {
					t.Errorf("it waits for %s", waitreason.Names[got])
				}
			})
		}
	}
}

// A pod that was refused is tried again once it may be allowed, and only then; one that was not tried
// is to be tried anyway.
func TestPodsAreTriedAgainWhenTheirNamespaceMayBeAllowed(t *testing.T) {
	selected := &akriv0.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	r, namespaces := newRestrictedRig(t, selected, namespace("c"))
	p := pod("p", "1")
	p.Namespace = "c"
	r.know(p)
	r.refused(p, "node-a")
	untried := pod("untried", "1")
	untried.Namespace = "c"
	r.cache.SetPod(untried)
	r.requeued()
	r.cache.SetNamespace(namespace("other", "team", "a"))
	r.cache.SetConfiguration(restricted(selected))
	r.wantActivated("nothing that helps")
	labelled := namespace("c", "team", "a")
	check(namespaces.Update(labelled))
	r.cache.SetNamespace(labelled)
	r.wantActivated("its namespace was labelled", "p")
	r.cache.Queue.Try(p.UID)
	r.fits(p, "node-a")
	r.cache.SetConfiguration(restricted(&akriv0.AllowedNamespaces{Names: []string{"c"}}))
	r.wantActivated("spec.allowedNamespaces was changed", "p")
}
