package health

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// Loopback reports whether only processes of the node can connect to the address, which
// is host:port.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Guard lets those read who may: it asks the API server whose token a request has
// (TokenReview), and whether that user may get the path (SubjectAccessReview), as
// kube-scheduler and the kubelet do. Answers are kept for a minute, refusals for 30 s.
type Guard struct {
	users authenticator.Request
	may   authorizer.Authorizer
}

// NewGuard makes a Guard. It asks nothing yet.
func NewGuard(client kubernetes.Interface) (*Guard, error) {
	// As in k8s.io/apiserver/pkg/server/options, which brings a whole API server along.
	backoff := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	users, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, CacheTTL: time.Minute,
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: checkTimeout, WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make what asks for the users of tokens: %w", err)
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: time.Minute, DenyCacheTTL: 30 * time.Second, WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make what asks for permissions: %w", err)
	}
	return &Guard{users, may}, nil
}

// wrap returns a handler that answers 401 to who is not known, 403 to who may not, and
// 500 when the API server does not say.
func (g *Guard) wrap(handler http.Handler) http.Handler {
	if g == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known, err := g.users.AuthenticateRequest(r)
		if err != nil || !known {
			klog.FromContext(r.Context()).V(4).Info("Refused a request without a token that the API server knows", "path", r.URL.Path, "from", r.RemoteAddr, "reason", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		decision, reason, err := g.may.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path})
		switch {
		case err != nil:
			klog.FromContext(r.Context()).Error(err, "Cannot ask the API server who may read", "path", r.URL.Path, "user", who.User.GetName())
			http.Error(w, "the API server does not say whether you may", http.StatusInternalServerError)
		case decision != authorizer.DecisionAllow:
			klog.FromContext(r.Context()).V(4).Info("Refused a request", "path", r.URL.Path, "user", who.User.GetName(), "reason", reason)
			http.Error(w, fmt.Sprintf("user %q may not get %s: bind the ClusterRole system:monitoring to it", who.User.GetName(), r.URL.Path), http.StatusForbidden)
		default:
			handler.ServeHTTP(w, r)
		}
	})
}

// ServingTLS is what to serve with: the certificate in the files, which are read for each
// connection, so that a renewed one counts at once; without files one that the process
// makes for itself, whose clients cannot verify it.
func ServingTLS(certFile, keyFile, host string) (*tls.Config, error) {
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
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate to serve metrics with: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
