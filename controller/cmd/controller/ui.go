package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui"
)

// uiOptions are the flags of the page that users open in a browser.
type uiOptions struct {
	address           string
	certFile, keyFile string
	cluster           string
	sessions          int
}

func (o *uiOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "ui-bind-address", "0",
		"Where to serve the page that shows devices and who holds their slots, over HTTPS, to users who show a token of the API server: each sees what his own permissions allow. \"0\" serves nothing.")
	flags.StringVar(&o.certFile, "ui-tls-cert-file", "",
		"Certificate of the page, read again when it changes. Empty means one that the controller makes and signs itself when it starts.")
	flags.StringVar(&o.keyFile, "ui-tls-private-key-file", "", "Private key of --ui-tls-cert-file.")
	flags.StringVar(&o.cluster, "ui-cluster-name", "", "Name of the cluster that the page shows.")
	flags.IntVar(&o.sessions, "ui-max-sessions", ui.DefaultSessions,
		"How many users may use the page at once. Each has in the controller's memory what he may see of the cluster.")
}

// validate calls bad for each flag, with what is wrong with it.
func (o *uiOptions) validate(bad func(flag string, err error)) {
	bad("ui-bind-address", checkBindAddress(o.address))
	if (o.certFile == "") != (o.keyFile == "") {
		bad("ui-tls-cert-file", errors.New("it and --ui-tls-private-key-file go together"))
	}
	for flag, file := range map[string]string{"ui-tls-cert-file": o.certFile, "ui-tls-private-key-file": o.keyFile} {
		if file != "" {
			_, err := os.Stat(file)
			bad(flag, err)
		}
	}
	if o.sessions < 1 {
		bad("ui-max-sessions", fmt.Errorf("%d: want at least 1", o.sessions))
	}
}

// uiServer serves the page, whether its process leads or not: each serves its own users.
type uiServer struct {
	*uiOptions
	mgr manager.Manager
}

var _ manager.LeaderElectionRunnable = uiServer{}

// NeedLeaderElection has the manager start it at once.
func (uiServer) NeedLeaderElection() bool { return false }

// Start serves until ctx is done.
func (s uiServer) Start(ctx context.Context) error {
	certificate, err := s.certificate(ctx)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, serverPage, s.address, maxPageConnections, maxPagePerAddress)
	if err != nil {
		return fmt.Errorf("--ui-bind-address: %w", err)
	}
	sessions := ui.NewSessions(ctx, s.mgr.GetConfig(), s.cluster, s.sessions, clock.RealClock{})
	server := ui.NewServer(ctx, sessions.Handler())
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	context.AfterFunc(ctx, func() { server.Close() }) // pages are connected as long as they are open
	klog.FromContext(ctx).Info("Serving the page", "address", listener.Addr().String())
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// certificate returns what gives the server its certificate.
func (s uiServer) certificate(ctx context.Context) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if s.certFile != "" {
		watcher, err := certwatcher.New(s.certFile, s.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--ui-tls-cert-file: %w", err)
		}
		go func() {
			if err := watcher.Start(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot follow changes of the page's certificate", "file", s.certFile)
			}
		}()
		return watcher.GetCertificate, nil
	}
	pair, err := selfSigned(ctx, serverPage, s.address)
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }, nil
}
