package deploy

import (
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/validation/webhook"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const (
	control = "control" // the network namespace of the API server

	imagee = `spec.brokerSpec.brokerPodSpec.containers[0].imagee: Forbidden: unknown field; did you mean "image"?`
	wrong  = `{discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, imagee: i}]}}}`
)

// controller starts a replica, until the test ends; its webhook is at the port.
func (r *rig) controller(name string, port int, args ...string) {
	r.Helper()
	r.check(r.Cluster.Run(cluster.Program{Name: name, On: control, Argv: append([]string{
		filepath.Join(r.BinDir(), cluster.Controller), "--kubeconfig=" + r.ComponentKubeconfig(cluster.Controller, ""), "--v=2",
		fmt.Sprintf("--webhook-bind-address=127.0.0.1:%d", port), fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", port+100), fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", port+200),
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s",
	}, args...)}))
	r.Cleanup(func() { _ = r.RemoveProgram(name, control) }) // the test may have removed it
}

// configuration is one that nobody has stored; spec is YAML.
func configuration(t *testing.T, name, spec string) *akriv0.Configuration {
	t.Helper()
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
		t.Fatalf("%v:\n%s", err, spec)
	}
	return c
}

// try writes a Configuration without storing it.
func (r *rig) try(spec string) error {
	r.Helper()
	return r.akri.Create(r.Context(), configuration(r.T, "try", spec), client.DryRunAll)
}

func (r *rig) awaitRefusal() {
	r.Helper()
	r.await("wrong Configurations to be refused", func() (bool, string) {
		err := r.try(wrong)
		return apierrors.IsInvalid(err), fmt.Sprint(err)
	})
}

func (r *rig) get(name string) *akriv0.Configuration {
	r.Helper()
	c := &akriv0.Configuration{}
	r.check(r.akri.Get(r.Context(), client.ObjectKey{Namespace: "default", Name: name}, c))
	return c
}

// awaitProblem waits until the status says what is wrong, "" for nothing.
func (r *rig) awaitProblem(name, want string) {
	r.Helper()
	r.await(fmt.Sprintf("the status of %s to say %q", name, want), func() (bool, string) {
		status := r.get(name).Status
		for _, p := range status.Problems {
			if p.Reason == "InvalidConfiguration" {
				return want != "" && strings.Contains(p.Message, want), p.Message
			}
		}
		return want == "" && status.ObservedGeneration > 0, "no problem"
	})
}

func (r *rig) patch(name, patch string) error {
	r.Helper()
	return r.akri.Patch(r.Context(), &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// lead has the API server call the webhook at another port.
func (r *rig) lead(port int) {
	r.Helper()
	_, err := r.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(r.Context(), webhook.ConfigurationName, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"webhooks":[{"name":%q,"clientConfig":{"url":"https://127.0.0.1:%d%s"}}]}`, webhook.Name, port, webhook.Path), metav1.PatchOptions{})
	r.check(err)
}

func (r *rig) bundle() []byte {
	r.Helper()
	c, err := r.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(r.Context(), webhook.ConfigurationName, metav1.GetOptions{})
	r.check(err)
	return c.Webhooks[0].ClientConfig.CABundle
}

func countCertificates(bundle []byte) (n int) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return n
		}
		n++
	}
}
