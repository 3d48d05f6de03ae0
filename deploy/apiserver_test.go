package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// shared is the one real API server of the package's tests, with deploy/ applied. It has no
// nodes, and nothing acts on what is stored: tests make what they need by hand.
var shared struct {
	sync.Once
	*cluster.Cluster
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Cluster != nil {
		if err := errors.Join(checkLogs(), shared.Down(context.Background())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// checkLogs looks for what no test waits for: data races and panics.
func checkLogs() error {
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(shared.LogPath("a", control)), "*.log"))
	if err != nil {
		return err
	}
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, bad := range []string{"WARNING: DATA RACE", "panic:", "Observed a panic"} {
			if strings.Contains(string(text), bad) {
				return fmt.Errorf("%s has %q", file, bad)
			}
		}
	}
	return nil
}

// rig is the API server, as its admin sees it.
type rig struct {
	*testing.T
	*cluster.Cluster
	kube     kubernetes.Interface
	kubeslot versioned.Interface
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
		t.Skip("brings up an API server: needs root and KUBESLOT_E2E=1")
	}
	shared.Do(func() {
		cfg := cluster.Config{Name: "apiserver", APIOnly: true, Gangs: true, // for examples/gangs
			Binaries: map[string]string{cluster.Scheduler: "/bin/false", cluster.Kubecri: "/bin/false"}} // which do not run here
		if !testing.Short() {
			cfg.BuildFlags = []string{"-race"}
		}
		ctx := context.Background()
		if shared.err = cluster.Down(ctx, cfg); shared.err == nil { // what an earlier run left
			shared.Cluster, shared.err = cluster.Up(ctx, cfg)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	r := &rig{T: t, Cluster: shared.Cluster, warnings: &warnings{}}
	config, err := r.RESTConfig()
	r.check(err)
	config.QPS, config.WarningHandler = -1, r.warnings
	r.kube, err = kubernetes.NewForConfig(config)
	r.check(err)
	r.kubeslot, err = versioned.NewForConfig(config)
	r.check(err)
	r.akri = r.client(config)
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
	await.That(r.T, what, done)
}

// made checks the outcome of creating something that another test may have made before.
func (r *rig) made(err error) {
	r.Helper()
	if !apierrors.IsAlreadyExists(err) {
		r.check(err)
	}
}

// node makes a Node, and returns it as the owner of what it writes.
func (r *rig) node(name string) metav1.OwnerReference {
	r.Helper()
	nodes := r.kube.CoreV1().Nodes()
	_, err := nodes.Create(r.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.made(err)
	n, err := nodes.Get(r.Context(), name, metav1.GetOptions{})
	r.check(err)
	return v1alpha1.NodeOwner(name, n.UID)
}

// serviceAccount makes a namespace and a ServiceAccount in it, without which there are no pods.
func (r *rig) serviceAccount(namespace, name string) {
	r.Helper()
	_, err := r.kube.CoreV1().Namespaces().Create(r.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	r.made(err)
	_, err = r.kube.CoreV1().ServiceAccounts(namespace).Create(r.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.made(err)
}
