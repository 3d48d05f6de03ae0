package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// bringUp starts everything, as much at the same time as their needs allow:
//
//	etcd ─▶ kube-apiserver ─▶ RBAC ─┬▶ kube-controller-manager
//	                                └▶ deploy/ ─┬▶ kube-scheduler, controller
//	containerd, images (each node) ─────────────┴▶ kubecri ─▶ kubelet ─▶ Ready
func (u *upper) bringUp(ctx context.Context) error {
	if u.cfg.APIOnly {
		if err := u.startAPI(ctx); err != nil {
			return err
		}
		return u.install(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	apiReady, installed := make(chan struct{}), make(chan struct{})
	g.Go(func() error {
		if err := u.startAPI(ctx); err != nil {
			return err
		}
		close(apiReady)
		if err := u.install(ctx); err != nil {
			return err
		}
		close(installed)
		if err := u.startController(ctx); err != nil {
			return err
		}
		return u.startScheduler(ctx)
	})
	g.Go(func() error {
		if !reached(ctx, apiReady) {
			return nil // whoever ended ctx says why
		}
		return u.startControllerManager(ctx)
	})
	for _, n := range u.Nodes() {
		g.Go(func() error {
			if err := u.startContainerd(ctx, n); err != nil {
				return err
			}
			if !reached(ctx, installed) {
				return nil
			}
			return u.startNode(ctx, n)
		})
	}
	return g.Wait()
}

// reached waits for a step of another goroutine; false means that ctx ended.
func reached(ctx context.Context, step <-chan struct{}) bool {
	select {
	case <-step:
		return true
	case <-ctx.Done():
		return false
	}
}

// startAPI ends when the admin can use the API from the host.
func (u *upper) startAPI(ctx context.Context) error {
	l := u.layout
	if err := u.startAndAwait(ctx, etcdProcess(l, u.programs)); err != nil {
		return err
	}
	server := apiServerProcess(l, u.programs)
	if u.cfg.Gangs {
		server.Argv = append(server.Argv, gangsGate, "--runtime-config=scheduling.k8s.io/v1beta1=true")
	}
	if err := l.start(server); err != nil {
		return err
	}
	if err := u.startAndAwait(ctx, forwarderProcess(l)); err != nil {
		return err
	}
	address, err := l.hostAddress()
	if err != nil {
		return err
	}
	if err := writeKubeconfigs(u.cfg, l, u.ca, address); err != nil {
		return err
	}
	bootstrap, err := bootstrapConfig(u.ca, address)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(bootstrap)
	if err != nil {
		return err
	}
	if err := u.awaitProcess(ctx, server, "kube-apiserver is serving", u.probe(APIServer, "")); err != nil {
		return err
	}
	for _, binding := range []*rbacv1.ClusterRoleBinding{
		roleBinding(adminGroup, "cluster-admin", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: adminGroup}),
		roleBinding("kubeslot:"+kubeletClientUser, "system:kubelet-api-admin", rbacv1.Subject{Kind: rbacv1.UserKind, Name: kubeletClientUser}),
	} {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("bind %s: %w", binding.Name, err)
		}
	}
	admin, err := u.client()
	if err != nil {
		return err
	}
	// The authorizer learns of the binding by its watch.
	return u.awaitProcess(ctx, server, "the admin may do everything", func(ctx context.Context) error {
		_, err := admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

func (c *Cluster) client() (*kubernetes.Clientset, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func roleBinding(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	subject.APIGroup = rbacv1.GroupName
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

// install applies deploy/. The scheduler comes after it: it waits for ever on a
// CRD that is not there.
func (u *upper) install(ctx context.Context) error {
	if u.cfg.Stock {
		return nil
	}
	if _, err := u.Kubectl(ctx, "apply", "-k", u.cfg.RepoRoot+"/"+deployDir); err != nil {
		return err
	}
	if _, err := u.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"); err != nil {
		return err
	}
	u.printf("%s is applied, its CRDs are established", deployDir)
	return nil
}

func (u *upper) startScheduler(ctx context.Context) error {
	p := stockSchedulerProcess(u.layout, u.programs)
	if !u.cfg.Stock && !u.cfg.StockScheduler {
		var err error
		if p, err = schedulerProcess(u.cfg, u.layout, u.programs); err != nil {
			return err
		}
	}
	return u.startAndAwait(ctx, p)
}

func (u *upper) startController(ctx context.Context) error {
	if u.cfg.Stock {
		return nil
	}
	p, err := controllerProcess(u.cfg, u.layout, u.programs)
	if err != nil {
		return err
	}
	return u.startAndAwait(ctx, p)
}

// startControllerManager also waits for the service account without which no pod
// can be created.
func (u *upper) startControllerManager(ctx context.Context) error {
	p := controllerManagerProcess(u.layout, u.programs)
	if u.cfg.Gangs {
		p.Argv = append(p.Argv, gangsGate)
	}
	if err := u.startAndAwait(ctx, p); err != nil {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	return u.awaitProcess(ctx, p, "pods have a service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// startContainerd also loads the images: a pod must never find them missing.
func (u *upper) startContainerd(ctx context.Context, n Node) error {
	p := containerdProcess(u.cfg, n, u.programs)
	if err := u.startAndAwait(ctx, p); err != nil {
		return err
	}
	for _, archive := range u.archives {
		cmd := exec.CommandContext(ctx, u.programs["ctr"], "--address", n.ContainerdSocket, "--namespace", "k8s.io", "image", "import", archive)
		if output, err := cmd.CombinedOutput(); err != nil {
			return &processError{p, fmt.Errorf("import %s: %w: %s", archive, err, output)}
		}
	}
	u.printf("%s has the test images", n.Name)
	return nil
}

// startNode starts kubecri before kubelet, which ends when its runtime's socket
// is not there.
func (u *upper) startNode(ctx context.Context, n Node) error {
	if !u.cfg.Stock {
		p, err := kubecriProcess(u.cfg, u.layout, n, u.programs)
		if err != nil {
			return err
		}
		if err := u.startAndAwait(ctx, p); err != nil {
			return err
		}
	}
	p := kubeletProcess(u.cfg, u.layout, n, u.programs)
	if err := u.layout.start(p); err != nil {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	return u.awaitProcess(ctx, p, n.Name+" is Ready", func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return readyCondition(node)
	})
}

// readyCondition returns nil for a node that is Ready, else its reason.
func readyCondition(node *corev1.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			if condition.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("not ready: %s", condition.Message)
		}
	}
	return errors.New("not ready: kubelet has not reported yet")
}
