package e2e

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// The API server serves kubecri's requests by our FlowSchema, whichever way it knows
// kubecri, and nobody else's.
func TestFlowSchema(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ours, err := kube.FlowcontrolV1().FlowSchemas().Get(r.ctx, "kubeslot-kubecri", metav1.GetOptions{})
	r.check(err)
	level, err := kube.FlowcontrolV1().PriorityLevelConfigurations().Get(r.ctx, "workload-high", metav1.GetOptions{})
	r.check(err)
	admin, err := shared.RESTConfig()
	r.check(err)
	// schemas are the FlowSchema and the priority level that a request was served by.
	schemas := func(config *rest.Config) (schema, priority types.UID) {
		t.Helper()
		client, err := rest.HTTPClientFor(config)
		r.check(err)
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, config.Host+"/apis/kubeslot.io/v1alpha1/slotclaims?fieldSelector=spec.nodeName%3D"+nodeA, nil)
		r.check(err)
		response, err := client.Do(request)
		r.check(err)
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("listing the node's claims: %s", response.Status)
		}
		return types.UID(response.Header.Get("X-Kubernetes-PF-FlowSchema-UID")), types.UID(response.Header.Get("X-Kubernetes-PF-PriorityLevel-UID"))
	}
	for _, by := range []way{certificate, podToken} {
		if schema, priority := schemas(r.identity(by)); schema != ours.UID || priority != level.UID {
			t.Errorf("a request of kubecri's with its %s was served by FlowSchema %s at priority level %s, want %s (%s) and %s (%s)", by, schema, priority, ours.UID, ours.Name, level.UID, level.Name)
		}
	}
	if schema, _ := schemas(admin); schema == ours.UID || schema == "" {
		t.Errorf("the admin's request was served by FlowSchema %q, ours is %s", schema, ours.UID)
	}
}
