package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui"
)

// options are the command line.
type options struct {
	kubeconfig        string
	clusterCA         string // of the API server, in a pod
	address           string
	certFile, keyFile string
	page              ui.Options
}

// flags returns the flags in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	page := groups.FlagSet("page")
	page.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Kubeconfig that names the API server. Its credentials are not used. Empty means that of the pod's cluster.")
	page.StringVar(&o.address, "bind-address", ":8443", "Where to serve the page, over HTTPS.")
	page.StringVar(&o.certFile, "tls-cert-file", "",
		"Certificate of the page, read again when it changes. Empty means one that is made and self-signed at the "+
			"start.")
	page.StringVar(&o.keyFile, "tls-private-key-file", "", "Private key of --tls-cert-file.")
	page.StringVar(&o.page.Cluster, "cluster-name", "", "Name of the cluster that the page shows.")
	page.IntVar(&o.page.MaxSessions, "max-sessions", ui.DefaultSessions,
		"How many sessions there may be at once, of all users.")
	page.StringVar(&o.page.TokenHeader, "proxy-token-header", "",
		"Header in which a proxy sends users' tokens, such as Authorization. With it users cannot log in otherwise.")
	return groups
}

// validate checks everything that can be checked before anything is started.
func (o *options) validate() error {
	var errs []error
	bad := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	_, _, err := net.SplitHostPort(o.address)
	bad("bind-address", err)
	if (o.certFile == "") != (o.keyFile == "") {
		bad("tls-cert-file", errors.New("it and --tls-private-key-file go together"))
	}
	files := map[string]string{"kubeconfig": o.kubeconfig, "tls-cert-file": o.certFile,
		"tls-private-key-file": o.keyFile}
	for flag, file := range files {
		if file != "" {
			_, err := os.Stat(file)
			bad(flag, err)
		}
	}
	if o.page.MaxSessions < 1 {
		bad("max-sessions", fmt.Errorf("%d: want at least 1", o.page.MaxSessions))
	}
	return errors.Join(errs...)
}
