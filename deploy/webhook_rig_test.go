package deploy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/validation/webhook"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const (
	patience = 90 * time.Second
	control  = "control" // the network namespace of the API server

	imagee = `spec.brokerSpec.brokerPodSpec.containers[0].imagee: Forbidden: unknown field; did you mean "image"?`
	wrong  = `{discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, imagee: i}]}}}`
)

// rig is a real API server with deploy/ applied, and controllers beside it that have no
// more rights than deploy/ gives them.
type rig struct {
	*testing.T
	*cluster.Cluster
	kube     kubernetes.Interface
	akri     client.WithWatch
	warnings *warnings
}

// warnings are those of the answers to the rig's requests.
type warnings struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("brings up an API server: run `make test-e2e` as root")
	}
	cfg := cluster.Config{Name: "webhook", APIOnly: true, BuildFlags: []string{"-race"},
		Binaries: map[string]string{cluster.Scheduler: "/bin/false", cluster.Kubecri: "/bin/false"}} // which do not run here
	ctx := context.Background()
	if err := cluster.Down(ctx, cfg); err != nil {
		t.Fatalf("remove what an earlier run left: %v", err)
	}
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, Cluster: c, warnings: &warnings{}}
	t.Cleanup(func() {
		logs, err := filepath.Glob(filepath.Join(filepath.Dir(c.LogPath("a", control)), "*.log"))
		r.check(err)
		for _, file := range logs {
			text, err := os.ReadFile(file)
			r.check(err)
			for _, bad := range []string{"WARNING: DATA RACE", "panic:", "Observed a panic"} {
				if strings.Contains(string(text), bad) {
					t.Errorf("%s has %q", file, bad)
				}
			}
		}
		if err := c.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	config, err := c.RESTConfig()
	r.check(err)
	config.QPS, config.WarningHandler = -1, r.warnings
	r.kube, err = kubernetes.NewForConfig(config)
	r.check(err)
	r.akri = r.client(config)
	_, err = c.Kubectl(t.Context(), "apply", "-f", "webhook.yaml")
	r.check(err)
	return r
}

func (r *rig) client(config *rest.Config) client.WithWatch {
	r.Helper()
	c, err := client.NewWithWatch(config, client.Options{})
	r.check(err)
	r.check(akriv0.AddToScheme(c.Scheme()))
	return c
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) await(what string, done func() (bool, string)) {
	r.Helper()
	var last string
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ok, state := done()
		if ok {
			return
		}
		if last = state; time.Now().After(deadline) {
			r.Fatalf("waited %s for %s; last: %s", patience, what, last)
		}
	}
}

// controller starts a replica; its webhook is at the port.
func (r *rig) controller(name string, port int, args ...string) {
	r.Helper()
	r.check(r.Cluster.Run(cluster.Program{Name: name, On: control, Argv: append([]string{
		filepath.Join(r.BinDir(), cluster.Controller), "--kubeconfig=" + r.ComponentKubeconfig(cluster.Controller, ""), "--v=2",
		fmt.Sprintf("--webhook-bind-address=127.0.0.1:%d", port), fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", port+100), fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", port+200),
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s",
	}, args...)}))
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

// served is the certificate that a replica serves.
func (r *rig) served(port int) *x509.Certificate {
	r.Helper()
	conn, err := r.Dial(r.Context(), "", "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
	r.check(err)
	defer conn.Close()
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	r.check(secure.HandshakeContext(r.Context()))
	return secure.ConnectionState().PeerCertificates[0]
}
