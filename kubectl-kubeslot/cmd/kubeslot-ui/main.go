// Command kubeslot-ui serves the page of `kubectl kubeslot ui` to users of a cluster, each with
// the permissions of the token that they show. It has none of its own.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui"
	"github.com/kubeslot/kubeslot/serve"
	"github.com/kubeslot/kubeslot/serve/daemon"
)

const (
	name = "kubeslot-ui"
	// The most connections, in all and of one address: those of the streams of all users, who
	// may come through one proxy.
	maxConnections, maxPerAddress = 1024, 512
	// podCA is where a pod has the CA of its API server.
	podCA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

func main() { os.Exit(cli.Run(newCommand())) }

func newCommand() *cobra.Command {
	o := &options{clusterCA: podCA}
	cmd := &cobra.Command{
		Use:   name,
		Short: "Kubeslot's page of devices and slots, for the users of a cluster",
		Long: `kubeslot-ui serves a page that shows devices and who holds their slots, over HTTPS, to
users who show a token of the API server: each sees what their own permissions allow.
It has no permissions of its own, and only reads. For one user, on their own machine,
there is kubectl kubeslot ui.`,
	}
	return daemon.Command(cmd, o.flags(), o.validate, func(ctx context.Context) error { return run(ctx, o) })
}

// run serves until ctx is done.
func run(ctx context.Context, o *options) error {
	config, err := o.apiServer()
	if err != nil {
		return err
	}
	certificate, err := o.certificate(ctx)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	sessions := ui.NewSessions(ctx, config, o.page, clock.RealClock{})
	server := ui.NewServer(ctx, sessions.Handler())
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	context.AfterFunc(ctx, func() { server.Close() }) // pages are connected as long as they are open
	klog.FromContext(ctx).Info("Serving the page", "address", listener.Addr().String())
	bounds := serve.Bounds{Server: "page", Connections: maxConnections, PerAddress: maxPerAddress}
	if err := server.ServeTLS(serve.Bounded(ctx, listener, bounds), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// apiServer is where the API server is. A pod needs no token for that, which rest.InClusterConfig
// would ask for.
func (o *options) apiServer() (*rest.Config, error) {
	if o.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig %q: %w", o.kubeconfig, err)
		}
		return config, nil
	}
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this is no pod (KUBERNETES_SERVICE_HOST is not set): name the API server with " +
			"--kubeconfig")
	}
	if _, err := os.Stat(o.clusterCA); err != nil {
		return nil, fmt.Errorf("the CA of the API server: %w: mount the ConfigMap kube-root-ca.crt there", err)
	}
	trusts := rest.TLSClientConfig{CAFile: o.clusterCA}
	return &rest.Config{Host: "https://" + net.JoinHostPort(host, port), TLSClientConfig: trusts}, nil
}

// certificate returns what gives the server its certificate.
func (o *options) certificate(ctx context.Context) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if o.certFile == "" {
		host, _, _ := net.SplitHostPort(o.address)
		pair, err := serve.SelfSigned(ctx, "page", cmp.Or(host, name))
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }, err
	}
	watcher, err := certwatcher.New(o.certFile, o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot follow changes of the page's certificate", "file", o.certFile)
		}
	}()
	return watcher.GetCertificate, nil
}
