package health

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	"github.com/kubeslot/kubeslot/serve"
)

// ServingTLS is what to serve with: the certificate in the files, which are read for each
// connection, so that a renewed one counts at once; without files one that the process
// makes for itself, whose clients cannot verify it. It is made for the first connection: its
// keys take seconds on a small machine, and containers wait for a kubecri that starts.
func ServingTLS(ctx context.Context, certFile, keyFile, host string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if certFile != "" {
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("--tls-cert-file %q and --tls-private-key-file %q: %w", certFile, keyFile, err)
		}
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		}
		return config, nil
	}
	own := sync.OnceValues(func() (*tls.Certificate, error) { return serve.SelfSigned(ctx, "metrics", host) })
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own() }
	return config, nil
}
