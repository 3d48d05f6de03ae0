package services

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A Service that is not of this very Configuration is neither adopted, nor changed, nor deleted,
// whatever its name, labels and owner look like; while the Configuration wants a Service and when
// it does not any more.
func TestOthersServicesAreLeftAlone(t *testing.T) {
	controlled := func(apiVersion, kind, name, uid string) []metav1.OwnerReference {
		is := true
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: &is}}
	}
	const akri = "akri.sh/v0"
	labels := map[string]string{naming.Controller: naming.ControllerName, naming.Configuration: "cam"}
	for what, tc := range map[string]struct {
		namespace, name string
		labels          map[string]string
		owners          []metav1.OwnerReference
		after           time.Duration // look again
		told            string
		free            bool // the name is: ours is made beside it
	}{
		"a user's, of the name":                       {name: "cam-svc", after: refusedAgain, told: NameTaken},
		"a user's, with our labels":                   {name: "cam-svc", labels: labels, after: refusedAgain, told: NameTaken},
		"a user's, with our labels and another name":  {name: "mine", labels: labels, free: true},
		"of a Configuration that was, with orphans":   {name: "cam-svc", labels: labels, after: refusedAgain, told: NameTaken},
		"of a Configuration that was, and going":      {name: "cam-svc", labels: labels, owners: controlled(akri, "Configuration", "cam", "former"), after: cacheLag},
		"of an Instance that is called the same":      {name: "cam-svc", owners: controlled(akri, "Instance", "cam", "other"), after: refusedAgain, told: NameTaken},
		"of another system's Configuration":           {name: "cam-svc", labels: labels, owners: controlled("serving.knative.dev/v1", "Configuration", "cam", "knative"), after: refusedAgain, told: NameTaken},
		"of the same Configuration elsewhere":         {namespace: "other", name: "cam-svc", labels: labels, owners: controlled(akri, "Configuration", "cam", "elsewhere"), free: true},
		"of the former, with another name, and going": {name: "former", labels: labels, owners: controlled(akri, "Configuration", "cam", "former"), free: true},
	} {
		t.Run(what, func(t *testing.T) {
			stranger := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tc.name, UID: "stranger", Labels: tc.labels, OwnerReferences: tc.owners},
				Spec: corev1.ServiceSpec{Selector: map[string]string{"its": "own"}, Ports: []corev1.ServicePort{{Port: 1}}}}
			if tc.namespace != "" {
				stranger.Namespace = tc.namespace
			}
			r := newRig(t, found(), stranger)
			key := client.ObjectKeyFromObject(stranger)
			before := &corev1.Service{}
			if err := r.api.Get(t.Context(), key, before); err != nil {
				t.Fatal(err)
			}
			r.configure("", grpc)
			r.report()
			r.pod(corev1.PodRunning)
			reconciled := func() (after time.Duration) {
				for range 3 {
					result, err := r.reconcile(r.ofAll, "cam")
					if err != nil {
						t.Fatal(err)
					}
					after = result.RequeueAfter
				}
				return after
			}
			if after := reconciled(); after != tc.after {
				t.Errorf("looks again after %s, want %s", after, tc.after)
			}
			ours := &corev1.Service{}
			err := r.api.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "cam-svc"}, ours)
			if made := err == nil && ours.UID != "stranger"; made != tc.free {
				t.Errorf("ours is there: %v, want %v (%v)", made, tc.free, err)
			}
			told := ""
			for len(r.events.Events) > 0 {
				told += <-r.events.Events
			}
			if strings.Contains(told, NameTaken) != (tc.told == NameTaken) || strings.Count(told, "Warning") > 1 {
				t.Errorf("tells %q", told)
			}
			r.configure("", "")
			reconciled()
			now := &corev1.Service{}
			if err := r.api.Get(t.Context(), key, now); err != nil || cmp.Diff(before, now) != "" {
				t.Errorf("%v, the stranger's Service is changed: %s", err, cmp.Diff(before, now))
			}
		})
	}
}

// A Configuration that is deleted and made again gets a Service of its own once the garbage
// collector has taken the former's.
func TestServiceOfAConfigurationThatIsMadeAgain(t *testing.T) {
	r := newRig(t, found())
	r.configure("", grpc)
	r.report()
	r.pod(corev1.PodRunning)
	r.settle()
	key := types.NamespacedName{Namespace: "default", Name: "cam-svc"}
	former, again := &corev1.Service{}, &akriv0.Configuration{}
	if err := r.api.Get(t.Context(), key, former); err != nil {
		t.Fatal(err)
	}
	again.Namespace, again.Name = "default", "cam"
	if err := r.api.Delete(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	r.configure("", grpc)
	result, err := r.reconcile(r.ofAll, "cam")
	if err != nil || result.RequeueAfter != cacheLag {
		t.Errorf("%+v, %v: want that it waits for the garbage collector", result, err)
	}
	if err := r.api.Delete(t.Context(), former); err != nil { // by the garbage collector
		t.Fatal(err)
	}
	r.settle()
	own := &corev1.Service{}
	if err := r.api.Get(t.Context(), key, own); err != nil || own.UID == former.UID || own.OwnerReferences[0].UID == former.OwnerReferences[0].UID {
		t.Errorf("%v, %v: want a Service of the new Configuration", own.OwnerReferences, err)
	}
}
