package cluster

import (
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
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A cluster that is meant for tests needs no certificate after a year.
const certificateLife = 365 * 24 * time.Hour

// authority is the cluster's own certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: name}, certificateLife)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: pemBlock("CERTIFICATE", der)}, nil
}

func certificate(subject pkix.Name, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // never fails
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(life),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// sign returns a certificate and a new key for it, both PEM.
func (a *authority) sign(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate of %s: %w", template.Subject, err)
	}
	if key, err = marshalKey(private); err != nil {
		return nil, nil, err
	}
	return pemBlock("CERTIFICATE", der), key, nil
}

// client signs a certificate that names a user and groups to the API server.
func (a *authority) client(user string, life time.Duration, groups ...string) (cert, key []byte, err error) {
	return a.sign(certificate(pkix.Name{CommonName: user, Organization: groups}, life))
}

// server signs a certificate for names, which may be IPs.
func (a *authority) server(name string, names ...string) (cert, key []byte, err error) {
	template := certificate(pkix.Name{CommonName: name}, certificateLife)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.sign(template)
}

func marshalKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pemBlock("PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writePair writes a certificate and its key, readable by root alone.
func (l layout) writePair(name string, cert, key []byte) error {
	certFile, keyFile := l.keyPair(name)
	if err := os.WriteFile(certFile, cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(keyFile, key, 0o600)
}

// Identities of the cluster's components. The names of upstream's own are what
// RBAC's bootstrap roles and the node authorizer expect.
const (
	adminUser  = "kubeslot:admin"
	adminGroup = "kubeslot:cluster-admins"
	// kubeletClientUser is the API server when it calls kubelets.
	kubeletClientUser = "kube-apiserver-kubelet-client"
	kubecriGroup      = "system:kubecris"
	// frontProxy is the API server when it passes a user on to an aggregated API
	// server. An authority of its own keeps every other certificate from that.
	frontProxy = "front-proxy-client"
)

func kubeletUser(node string) string { return "system:node:" + node }
func kubecriUser(node string) string { return "system:kubecri:" + node }

// identityOf maps a kubeconfig's name to its user and groups.
type identityOf struct {
	user   string
	groups []string
}

func clientIdentities(cfg Config) map[string]identityOf {
	ids := map[string]identityOf{
		"admin":           {adminUser, []string{adminGroup}},
		ControllerManager: {"system:kube-controller-manager", nil},
		Scheduler:         {"system:kube-scheduler", nil},
	}
	if !cfg.Stock {
		ids[Controller] = identityOf{"system:kubeslot-controller", nil}
	}
	for _, node := range cfg.Nodes {
		ids[processID(Kubelet, node)] = identityOf{kubeletUser(node), []string{"system:nodes"}}
		if !cfg.Stock {
			ids[processID(Kubecri, node)] = identityOf{kubecriUser(node), []string{kubecriGroup}}
		}
	}
	return ids
}

// writePKI makes the authority and every certificate that lies on disk.
func writePKI(cfg Config, l layout) (*authority, error) {
	ca, err := newAuthority("kubeslot-" + cfg.Name)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.caFile(), ca.pem, 0o644); err != nil {
		return nil, err
	}
	caKey, err := marshalKey(ca.key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.caKey(), caKey, 0o600); err != nil {
		return nil, err
	}
	write := func(name string, cert, key []byte, err error) error {
		if err != nil {
			return err
		}
		return l.writePair(name, cert, key)
	}
	cert, key, err := ca.server(APIServer, controlIP.String(), apiService.String(), "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err := write(APIServer, cert, key, err); err != nil {
		return nil, err
	}
	cert, key, err = ca.client(kubeletClientUser, certificateLife)
	if err := write(kubeletClientUser, cert, key, err); err != nil {
		return nil, err
	}
	proxyCA, err := newAuthority("kubeslot-front-proxy")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.proxyCAFile(), proxyCA.pem, 0o644); err != nil {
		return nil, err
	}
	cert, key, err = proxyCA.client(frontProxy, certificateLife)
	if err := write(frontProxy, cert, key, err); err != nil {
		return nil, err
	}
	for i, node := range cfg.Nodes {
		cert, key, err := ca.server(kubeletUser(node), node, nodeIP(i).String())
		if err := write(processID(Kubelet, node), cert, key, err); err != nil {
			return nil, err
		}
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := marshalKey(signer)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return nil, err
	}
	return ca, l.writePair("service-account", pemBlock("PUBLIC KEY", public), private)
}

// readAuthority reads what writePKI has written.
func readAuthority(l layout) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(l.caFile(), l.caKey())
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("certificate authority: %s has a key of type %T", l.caKey(), pair.PrivateKey)
	}
	return &authority{cert: pair.Leaf, key: key, pem: pemBlock("CERTIFICATE", pair.Leaf.Raw)}, nil
}

// KubecriCertificate signs a client certificate for the kubecri of a node, which the
// cluster need not have. Both are PEM.
func (c *Cluster) KubecriCertificate(node string) (cert, key []byte, err error) {
	ca, err := readAuthority(c.layout)
	if err != nil {
		return nil, nil, err
	}
	return ca.client(kubecriUser(node), certificateLife, kubecriGroup)
}

func (l layout) caFile() string      { return filepath.Join(l.pki(), "ca.crt") }
func (l layout) caKey() string       { return filepath.Join(l.pki(), "ca.key") }
func (l layout) proxyCAFile() string { return filepath.Join(l.pki(), "front-proxy-ca.crt") }

// kubeconfigFor builds a kubeconfig for a user of the authority.
func kubeconfigFor(ca *authority, server string, id identityOf) (*clientcmdapi.Config, error) {
	cert, key, err := ca.client(id.user, certificateLife, id.groups...)
	if err != nil {
		return nil, err
	}
	const context = "kubeslot"
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{context: {Server: server, CertificateAuthorityData: ca.pem}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{id.user: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: context, AuthInfo: id.user}},
		CurrentContext: context,
	}, nil
}

// writeKubeconfigs gives each component a kubeconfig. Those of the components
// lead to the API server directly, the admin's through the forwarder.
func writeKubeconfigs(cfg Config, l layout, ca *authority, hostAddress string) error {
	for name, id := range clientIdentities(cfg) {
		server := fmt.Sprintf("https://%s:%d", controlIP, apiPort)
		if name == "admin" {
			server = "https://" + hostAddress
		}
		kubeconfig, err := kubeconfigFor(ca, server, id)
		if err != nil {
			return err
		}
		if err := clientcmd.WriteToFile(*kubeconfig, l.kubeconfig(name)); err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", name, err)
		}
	}
	return nil
}

// bootstrapConfig is an identity that RBAC cannot refuse, for the one step before
// the admin's own binding exists. It never reaches the disk.
func bootstrapConfig(ca *authority, hostAddress string) (*rest.Config, error) {
	cert, key, err := ca.client("kubeslot:bootstrap", 10*time.Minute, "system:masters")
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            "https://" + hostAddress,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.pem, CertData: cert, KeyData: key},
	}, nil
}
