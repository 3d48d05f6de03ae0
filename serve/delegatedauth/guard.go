// Package delegatedauth has the API server say who may read what a component serves over
// the network, such as /metrics: delegated authentication and authorization, as
// kube-scheduler and the kubelet have it.
package delegatedauth

import (
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
	"k8s.io/klog/v2"
)

// reviewTimeout bounds one TokenReview.
const reviewTimeout = 5 * time.Second

// Loopback reports whether only processes of the host can connect to the address, which
// is host:port.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Guard asks the API server whose token a request has (TokenReview), and whether that user
// may get the path (SubjectAccessReview). Answers are kept for a minute, refusals of
// permissions for 30 s. Safe for concurrent use.
type Guard struct {
	users authenticator.Request
	may   authorizer.Authorizer
}

// New makes a Guard. It asks nothing yet.
func New(client kubernetes.Interface) (*Guard, error) {
	// As in k8s.io/apiserver/pkg/server/options, which brings a whole API server along.
	backoff := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	users, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, CacheTTL: time.Minute,
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: reviewTimeout, WebhookRetryBackoff: backoff,
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

// Wrap returns a handler that answers 401 to who is not known, which includes a token that
// the API server cannot be asked about, 403 to who may not get the path, and 500 when the
// API server does not say whether a known user may.
func (g *Guard) Wrap(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, message := g.judge(r); code != http.StatusOK {
			http.Error(w, message, code)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// Allows reports whether the request may get its path. One without a token costs no call.
// A known token is taken out of the request, so that each is to be judged once.
func (g *Guard) Allows(r *http.Request) bool {
	code, _ := g.judge(r)
	return code == http.StatusOK
}

// judge returns 200 for a request that may get its path, or what to answer.
func (g *Guard) judge(r *http.Request) (code int, message string) {
	logger := klog.FromContext(r.Context())
	who, known, err := g.users.AuthenticateRequest(r)
	if err != nil || !known { // a token that the API server does not know is an error
		logger.V(4).Info("Refused a request without a token that the API server knows", "path", r.URL.Path, "from", r.RemoteAddr, "reason", err)
		return http.StatusUnauthorized, "Unauthorized"
	}
	user := who.User.GetName()
	decision, reason, err := g.may.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path})
	switch {
	case err != nil:
		logger.Error(err, "Cannot ask the API server who may read", "path", r.URL.Path, "user", user)
		return http.StatusInternalServerError, "the API server does not say whether you may"
	case decision != authorizer.DecisionAllow:
		logger.V(4).Info("Refused a request", "path", r.URL.Path, "user", user, "reason", reason)
		return http.StatusForbidden, fmt.Sprintf("user %q may not get %s: bind the ClusterRole system:monitoring to it", user, r.URL.Path)
	}
	return http.StatusOK, ""
}
