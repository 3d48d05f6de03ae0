package serve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"strings"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// SelfSigned makes a certificate for the server of the host, which its clients cannot verify: its
// fingerprint is logged, to compare with what they see.
func SelfSigned(ctx context.Context, server, host string) (*tls.Certificate, error) {
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the %s server: %w", server, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the %s server: %w", server, err)
	}
	klog.FromContext(ctx).Info("Made a certificate", "server", server,
		"sha256Fingerprint", fingerprint(pair.Certificate[0]))
	return &pair, nil
}

// fingerprint is a certificate's SHA-256, written as browsers and openssl do.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}
