package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// commonName is in the subject of all certificates of webhooks of ours.
const commonName = "kubeslot-webhook"

// backdate is how long before its making a certificate is valid: for API servers whose
// clocks are behind.
const backdate = 24 * time.Hour

// pair is a certificate and its key, which is in this process alone.
type pair struct {
	tls  *tls.Certificate
	leaf *x509.Certificate
	// made is when it was made, which NotBefore is not.
	made time.Time
}

// newPair makes a certificate that is signed with its own key: API servers trust it
// because it is in the caBundle. It cannot sign others. name is a DNS name or an IP
// address. replica tells this process's certificates from others'.
func newPair(now time.Time, name, replica string, duration time.Duration) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: commonName, OrganizationalUnit: []string{replica}},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(duration),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},

		BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %q: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &pair{tls: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, leaf: leaf, made: now}, nil
}

// covers reports whether the certificate is for the name.
func (p *pair) covers(name string) bool { return p.leaf.VerifyHostname(name) == nil }

// validAt reports whether the certificate has begun and not ended.
func (p *pair) validAt(now time.Time) bool {
	return !now.Before(p.leaf.NotBefore) && now.Before(p.leaf.NotAfter)
}

// renewAt is when a successor is due: when a third of the time is left, so that API
// servers whose clocks are ahead have it too before the certificate ends for them.
func (p *pair) renewAt() time.Time {
	return p.leaf.NotAfter.Add(-p.leaf.NotAfter.Sub(p.made) / 3)
}

// readBundle returns the certificates of a caBundle. What is none is left out.
func readBundle(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && !contains(all, c) {
			all = append(all, c)
		}
	}
}

func writeBundle(all []*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, c := range all {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // to memory
	}
	return text.Bytes()
}

func contains(all []*x509.Certificate, c *x509.Certificate) bool {
	return slices.ContainsFunc(all, c.Equal)
}

// ours reports whether a certificate is one that a replica of the controller made.
func ours(c *x509.Certificate) bool { return c.Subject.CommonName == commonName }

func madeBy(c *x509.Certificate, replica string) bool {
	return ours(c) && slices.Equal(c.Subject.OrganizationalUnit, []string{replica})
}
