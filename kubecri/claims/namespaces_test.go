package claims

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Whoever assigned the slot, a node claims none for a pod whose namespace its
// Configuration does not allow.
func TestSlotsOfNamespacesThatAreNotAllowed(t *testing.T) {
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "devices", Name: "cam"}}
	c.Spec.AllowedNamespaces = &akriv0.AllowedNamespaces{Names: []string{"b"}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	for _, test := range []struct {
		namespace string
		labels    map[string]string
		err       error
		want      string // "" for allowed
		refusal   bool
	}{
		{namespace: "devices"},
		{namespace: "b"},
		{namespace: "a", labels: map[string]string{"team": "a"}},
		{namespace: "c", want: "slot cam-000001-0 is of Configuration devices/cam, whose spec.allowedNamespaces does not allow namespace c", refusal: true},
		{namespace: "d", err: errors.New("api away"), want: "whether pods of namespace d may use it cannot be told: api away"},
	} {
		for _, resource := range []string{"cam", "cam-000001"} {
			err := permit(grants(t, resource, "cam-000001-0")[0], []*akriv0.Configuration{c}, false, test.namespace,
				func() (map[string]string, error) { return test.labels, test.err })
			if test.want == "" {
				if err != nil {
					t.Errorf("namespace %s: %v", test.namespace, err)
				}
				continue
			}
			refusal := new(Refusal)
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.As(err, &refusal) != test.refusal {
				t.Errorf("namespace %s: error %v (%T), want %q", test.namespace, err, err, test.want)
			}
		}
	}
}

// The namespace's labels are read for a new claim, and a pod that holds its slot keeps it
// whatever the Configuration says since.
func TestTakeForANamespace(t *testing.T) {
	api := newAPI(t, 2, map[string]string{"cam-000001-0": "CL u1 node-a"})
	cam, err := api.AkriV0().Configurations("default").Get(t.Context(), "cam", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cam.Spec.AllowedNamespaces = &akriv0.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	if _, err := api.AkriV0().Configurations("default").Update(t.Context(), cam, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.kube.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}); err != nil {
		t.Fatal(err)
	}
	f := start(t, api, &fakeRuntime{}, setup{})
	f.mustCreate(t, "c1", "u1", "cam", "cam-000001-0")
	err = f.create(t, "c2", "u2", "cam", "cam-000001-1")
	if err == nil || !strings.Contains(err.Error(), "does not allow namespace ns") || api.claim(t, "cam-000001-1") != nil {
		t.Errorf("a pod of a namespace without the label: %v, claim %v", err, api.claim(t, "cam-000001-1"))
	}
	labelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"team": "a"}}}
	if _, err := api.kube.CoreV1().Namespaces().Update(t.Context(), labelled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.mustCreate(t, "c2", "u2", "cam", "cam-000001-1")
}
