package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// certificate returns one for 127.0.0.1 that is its own CA, and that CA in PEM.
func certificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A value of a Secret goes to a handler on a unix socket, or one that a CA of the Configuration knows.
func TestSecretsNeedTLS(t *testing.T) {
	served, ca := certificate(t)
	_, otherCA := certificate(t)
	secured, needTLS := grpc.Creds(credentials.NewServerTLSFromCert(&served)), discovery.ErrSecretsNeedTLS
	for name, tc := range map[string]struct {
		scheme  string // "" for a unix socket
		request discovery.Request
		want    string // in the error; "" for none
	}{
		"a Secret over http":        {"http://", discovery.Request{Secret: true, CABundle: ca}, needTLS.Error()},
		"no Secret over http":       {"http://", discovery.Request{}, ""},
		"a Secret on a unix socket": {"", discovery.Request{Secret: true}, ""},
		"a Secret over https":       {"https://", discovery.Request{Secret: true, CABundle: ca}, ""},
		"one of several CAs":        {"https://", discovery.Request{Secret: true, CABundle: append(otherCA, ca...)}, ""},
		"another CA":                {"https://", discovery.Request{Secret: true, CABundle: otherCA}, "cannot connect"},
		"no CA":                     {"https://", discovery.Request{Secret: true}, "no spec.handlerCABundle"},
		"no CA and no Secret":       {"https://", discovery.Request{}, "no spec.handlerCABundle"},
		"what is no CA":             {"https://", discovery.Request{CABundle: []byte("x")}, "no certificate in PEM"},
		"an endpoint without TLS":   {"https://plain", discovery.Request{Secret: true, CABundle: ca}, "cannot connect"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.connectTimeout = 5 * time.Second
			asked := make(chan struct{}, 10)
			discover := func(request *pb.DiscoverRequest, stream stream) error {
				asked <- struct{}{}
				return sends(devices("a"))(request, stream)
			}
			var source *discovery.Source
			if tc.scheme == "" {
				serveHandler(t, s, "x", discover)
				source = register(t, s, "x", true)
			} else {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				scheme, plain := strings.CutSuffix(tc.scheme, "plain")
				if scheme == "https://" && !plain {
					serveOn(t, l, discover, secured)
				} else {
					serveOn(t, l, discover)
				}
				source = registerAt(t, s, &pb.RegisterDiscoveryHandlerRequest{
					Name: "x", Endpoint: scheme + l.Addr().String(), EndpointType: network})
			}
			run := start(t, source, tc.request)
			if tc.want == "" {
				if got := ids(await.Next(t, "the report", run.reports)); got != "a" {
					t.Errorf("reported %q, want a", got)
				}
				return
			}
			err := await.Next(t, "the error", run.done)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Discover() = %v, want %q", err, tc.want)
			}
			if len(asked) > 0 {
				t.Error("the handler was asked")
			}
			if got := errors.Is(err, needTLS); got != (tc.want == needTLS.Error()) {
				t.Errorf("%v is an ErrSecretsNeedTLS: %t", err, got)
			}
		})
	}
}
