package admit

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// byDRA is the pod, of whose request of container "main" Kubernetes has made a ResourceClaim.
func byDRA(container string) *corev1.Pod {
	p := requesting("1")
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c",
		RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: container, ResourceName: assignment.ResourcePrefix + "cam", RequestName: "r"}}}
	return p
}

// A container whose request DRA serves starts without an assignment; of another it is not believed.
func TestExtendedResourceByDRA(t *testing.T) {
	got := decided(t, nil, "", byDRA("main"), nil)
	if !got.none() {
		t.Errorf("%+v, want a container that is left alone", got)
	}
	decided(t, nil, "", byDRA("side"), []string{"akri.sh/cam", "no slots"})
}

// A container that requests as slots what DRA gives hears what to request instead.
func TestAllocatedByDRA(t *testing.T) {
	refusal := errors.New("no slots")
	dra := func(name string) bool { return name == "cam" }
	for resource, want := range map[string]string{"cam": "akri.sh/cam,", "cam-8120fe": "akri.sh/cam-8120fe,"} {
		err := allocatedByDRA(refusal, map[string]int64{resource: 1, "mic": 1}, dra)
		var refused *claims.Refusal
		if !errors.As(err, &refused) {
			t.Fatalf("%s: %v", resource, err)
		}
		for _, part := range []string{want, "allocatedByDRA", "DeviceClass cam.slots.kubeslot.io"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error %q does not say %q", resource, err, part)
			}
		}
	}
	if err := allocatedByDRA(refusal, map[string]int64{"mic": 1},
		dra); err != refusal { //nolint:errorlint // the very same
		t.Errorf("another's: %v", err)
	}
}
