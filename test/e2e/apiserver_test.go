package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
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

// The policy for namespaces with quotas is in force where the namespace's label asks for it,
// and nowhere else.
func TestInstanceRequestsForbidden(t *testing.T) {
	r := newRig(t)
	const label = "kubeslot.io/instance-requests"
	file := filepath.Join(shared.Config().RepoRoot, "deploy/quota/instance-requests.yaml")
	_, err := shared.Kubectl(r.ctx, "apply", "-f", file)
	r.check(err)
	t.Cleanup(func() {
		_, err := shared.Kubectl(context.Background(), "delete", "-f", file)
		r.check(err)
	})
	try := func(resource string) error {
		_, err := kube.CoreV1().Pods(r.ns).Create(r.ctx, newPod("p", "", map[string]int64{resource: 1}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	setLabel := func(value string) {
		t.Helper()
		_, err := kube.CoreV1().Namespaces().Patch(r.ctx, r.ns, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":`+value+`}}}`), metav1.PatchOptions{})
		r.check(err)
	}
	setLabel(`"forbidden"`)
	r.await("a pod that requests an Instance to be refused in the labelled namespace", func() (bool, string) {
		err := try("cameras-f30c78")
		return strings.Contains(fmt.Sprint(err), "may not request one device, such as akri.sh/cameras-f30c78"), fmt.Sprint(err)
	})
	if err := try("cameras"); err != nil {
		t.Errorf("a pod that requests a Configuration's devices is refused: %v", err)
	}
	if _, err := kube.CoreV1().Pods(v1.NamespaceDefault).Create(r.ctx, newPod("p", "", map[string]int64{"cameras-f30c78": 1}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a pod that requests an Instance is refused in a namespace without the label: %v", err)
	}
	for _, value := range []string{`"allowed"`, "null"} {
		setLabel(value)
		r.await("the pod to be accepted with the label "+value, func() (bool, string) {
			err := try("cameras-f30c78")
			return err == nil, fmt.Sprint(err)
		})
	}
}
