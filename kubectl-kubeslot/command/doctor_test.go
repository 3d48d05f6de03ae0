package command

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
)

// In a cluster that Kubeslot was removed from, doctor says so, and what nodes have of it.
func TestDoctorAfterUninstall(t *testing.T) {
	for name, tc := range map[string]struct {
		missing, want, not string
	}{
		"nothing is there":      {"configurations", "LeftOver", ""},
		"there are Akri's CRDs": {"deviceslices", "", "LeftOver"}, // and its agents' resources
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.set("node/a", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"KubeDevice/DeviceInfo": "{}"}}})
			o, out, _ := s.options("")
			kube, akri, definitions := s.clients()
			akri.PrependReactor("list", tc.missing, func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
			})
			o.connected = source.For(kube, akri, definitions, nil, "default")
			root := newRoot(o)
			root.SetArgs([]string{"doctor"})
			ran, err := root.ExecuteContextC(t.Context())
			if err == nil || !strings.Contains(err.Error(), "the cluster has no "+tc.missing) || o.exitCode(t.Context(), ran.Name(), err) != 2 {
				t.Errorf("doctor says %v", err)
			}
			if !strings.Contains(out.String(), tc.want) || tc.not != "" && strings.Contains(out.String(), tc.not) {
				t.Errorf("doctor prints %q, want %q and not %q", out, tc.want, tc.not)
			}
		})
	}
}
