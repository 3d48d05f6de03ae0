package ui

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
)

const (
	// idle is how long a session without an open page is kept, for its history.
	idle = 15 * time.Minute
	// check is how often each session's user is looked up anew, and checkTimeout how long that may
	// take: a token or a permission that is withdrawn ends a session after the sum at most.
	check, checkTimeout = 30 * time.Second, 10 * time.Second
	// outage is how long a session is kept that cannot be checked while the API server does not
	// answer its cache either: the page shows what was read before, and that it is out of date.
	outage = 5 * time.Minute
	// opening is how long it may take to read the cluster's objects.
	opening = 30 * time.Second
	// DefaultSessions is how many sessions there may be at once.
	DefaultSessions = 20
	// sessionsOfUser is how many of them one user may have: browsers, or namespaces that are shown.
	sessionsOfUser = 3

	// longestToken is how many bytes of a token fit in a cookie, of which a browser keeps
	// 4096 with its name and attributes.
	longestToken = 3800

	tokenCookie, namespaceCookie = "__Host-kubeslot-token", "__Host-kubeslot-namespace"
)

// Sessions serves the page to users who show a token of the API server, in an
// Authorization header or by logging in. What a user sees is asked of the API server with that
// token, when the session begins and from then on: it has no permissions of its own. Sessions
// whose users may list the same share a cache. Safe for concurrent use.
type Sessions struct {
	Options
	config *rest.Config // without credentials
	clock  clock.WithTicker
	logins *logins
	ctx    context.Context

	mu     sync.Mutex
	all    map[[sha256.Size]byte]*session
	caches map[source.Reach]*objects
}

// session is what a user sees. Of its fields those without a comment do not change once ready is
// closed.
type session struct {
	ctx     context.Context // done when it has ended
	end     context.CancelFunc
	token   string
	refused atomic.Bool // the API server has refused a request for the cache with the token
	ready   chan struct{}
	viewer  *viewer
	err     error
	from    *source.Source
	reach   source.Reach
	objects *objects

	user    string // empty until the API server has taken the token; of Sessions.mu, as the rest
	streams int    // open pages
	used    time.Time
}

// Options are what the users' page is served with.
type Options struct {
	Cluster     string // its name on the page
	MaxSessions int
	// TokenHeader is the header in which a proxy sends users' tokens; with one they cannot log in
	// otherwise. Who reaches the page past the proxy gains nothing: the API server takes the token
	// or does not, whoever has sent it.
	TokenHeader string
}

// NewSessions makes Sessions, which end with ctx. Of the config the address of the API
// server is used, and not the credentials.
func NewSessions(ctx context.Context, config *rest.Config, o Options, c clock.WithTicker) *Sessions {
	config = rest.AnonymousClientConfig(config)
	config.RateLimiter, config.UserAgent = nil, "kubeslot-ui"
	return &Sessions{Options: o, config: config, clock: c, ctx: ctx, logins: newLogins(c),
		all: map[[sha256.Size]byte]*session{}, caches: map[source.Reach]*objects{}}
}

// Handler serves the page, and a form to log in.
func (s *Sessions) Handler() http.Handler {
	mux := routes(s.viewerOf)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	return guarded(mux)
}

// viewerOf returns the viewer of the user who asks. Without one it answers with the form
// to log in.
func (s *Sessions) viewerOf(w http.ResponseWriter, r *http.Request) *viewer {
	token, namespace := s.credentials(r)
	if token == "" {
		code := http.StatusUnauthorized
		if r.URL.Path == "/" { // what a user asks for who has not logged in yet
			code = http.StatusOK
		}
		problem := ""
		if s.TokenHeader != "" {
			problem = "the proxy before this page has sent no token in the header " + s.TokenHeader
		}
		s.form(w, code, problem)
		return nil
	}
	v, err := s.open(r, token, namespace)
	if err != nil {
		s.form(w, status(err), err.Error())
		return nil
	}
	return v
}

func idOf(token, namespace string) [sha256.Size]byte {
	return sha256.Sum256([]byte(namespace + "\x00" + token))
}

// open returns the viewer of a token, and makes a session when there is none.
func (s *Sessions) open(r *http.Request, token, namespace string) (*viewer, error) {
	id := idOf(token, namespace)
	s.mu.Lock()
	one := s.all[id]
	if one == nil {
		if !s.logins.accept(r.RemoteAddr) {
			s.mu.Unlock()
			return nil, errBusy
		}
		one = &session{token: token, ready: make(chan struct{})}
		one.ctx, one.end = context.WithCancel(s.ctx)
		s.all[id] = one
		go s.start(id, one, namespace)
	}
	one.used = s.clock.Now()
	s.mu.Unlock()
	select {
	case <-one.ready:
		return one.viewer, one.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// admit counts the session as the user's, and makes room for it.
func (s *Sessions) admit(one *session, user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := func(other *session) bool { return other.user == user }
	if !s.makeRoom(sessionsOfUser, own) {
		return fmt.Errorf("you have %d sessions of this page open, which is as many as one user may have: "+
			"log out of one, or use `kubectl kubeslot ui`", sessionsOfUser)
	}
	if !s.makeRoom(s.MaxSessions, func(other *session) bool { return other.user != "" }) {
		return fmt.Errorf("%d sessions of this page are open, which is as many as there may be: "+
			"try again later, or use `kubectl kubeslot ui`", s.MaxSessions)
	}
	one.user = user
	return nil
}

// makeRoom reports whether there is room for one more session of those that count. When there are
// too many, the one that has been idle for the longest ends. The lock is held.
func (s *Sessions) makeRoom(most int, counts func(*session) bool) bool {
	n := 0
	var oldest *session
	var at [sha256.Size]byte
	for id, one := range s.all {
		if !counts(one) {
			continue
		}
		n++
		if one.streams == 0 && (oldest == nil || one.used.Before(oldest.used)) {
			oldest, at = one, id
		}
	}
	if n >= most && oldest != nil {
		s.drop(at, oldest)
		n--
	}
	return n < most
}

// start makes a session ready, and keeps it until it ends.
func (s *Sessions) start(id [sha256.Size]byte, one *session, namespace string) {
	if one.err = s.prepare(one, namespace); one.err != nil {
		s.close(id, one)
		close(one.ready)
		return
	}
	close(one.ready)
	about := one.viewer.about
	klog.FromContext(one.ctx).Info("Opened a session of the page", "user", about.User, "namespace", about.Namespace)
	s.guard(id, one)
}

// prepare asks whose the token is and what that user may list, and makes the session's viewer.
func (s *Sessions) prepare(one *session, namespace string) error {
	ctx, cancel := context.WithTimeoutCause(one.ctx, opening, errors.New("the API server took too long"))
	defer cancel()
	config := rest.CopyConfig(s.config)
	config.BearerToken = one.token
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	user, err := whoIs(ctx, kube)
	if err != nil {
		return err
	}
	// Only now, so that nobody without a good token ends another's session.
	if err := s.admit(one, user); err != nil {
		return err
	}
	if namespace == "" {
		namespace = homeOf(user)
	}
	if one.from, err = source.New(config, namespace); err != nil {
		return err
	}
	if one.reach, err = one.from.Reach(ctx); err != nil {
		return err
	}
	if err := s.join(ctx, one); err != nil {
		return err
	}
	about := About{Cluster: s.Cluster, User: user, Namespace: namespace, Logout: s.TokenHeader == ""}
	one.viewer = &viewer{Hub: one.objects.hub, about: about,
		events: one.from.Events, opened: func(by int) { s.count(one, by) }, done: one.ctx.Done()}
	return nil
}

// whoIs returns the user whom the API server takes the token for.
func whoIs(ctx context.Context, kube kubernetes.Interface) (string, error) {
	review, err := kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return "", fmt.Errorf("the API server does not accept the token: %w", err)
	case err != nil:
		return "", fmt.Errorf("ask the API server who you are: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// homeOf is the namespace of a ServiceAccount; "default" for other users.
func homeOf(user string) string {
	if rest, is := strings.CutPrefix(user, "system:serviceaccount:"); is {
		if namespace, _, found := strings.Cut(rest, ":"); found {
			return namespace
		}
	}
	return metav1.NamespaceDefault
}

// guard ends a session that is idle, or whose user may not be shown its cache any longer.
func (s *Sessions) guard(id [sha256.Size]byte, one *session) {
	ticker := s.clock.NewTicker(check)
	defer ticker.Stop()
	confirmed := s.clock.Now()
	for {
		select {
		case <-one.ctx.Done():
			return
		case <-ticker.C():
		}
		began := s.clock.Now()
		ctx, cancel := context.WithTimeout(one.ctx, checkTimeout)
		reach, err := one.from.Reach(ctx)
		cancel()
		s.mu.Lock()
		unused := one.streams == 0 && s.clock.Since(one.used) > idle
		s.mu.Unlock()
		switch {
		case unused:
		case err == nil && reach == one.reach:
			confirmed = began
			continue
		case !mayHaveLost(err) && one.objects.live.Err() != nil && s.clock.Since(confirmed) < outage:
			continue
		}
		klog.FromContext(one.ctx).Info("Ended a session of the page",
			"user", one.viewer.about.User, "idle", unused, "err", err)
		s.close(id, one)
		return
	}
}

// mayHaveLost reports whether the API server has answered that the user may list less, or other
// objects, than before: err is of the check, nil when they are others.
func mayHaveLost(err error) bool {
	return err == nil || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}

// count counts the open pages of a session.
func (s *Sessions) count(one *session, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.streams += by
	one.used = s.clock.Now()
}

// close ends a session: the one given, or whichever has the id.
func (s *Sessions) close(id [sha256.Size]byte, which *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.all[id]; one != nil && (which == nil || which == one) {
		s.drop(id, one)
	}
}

// drop ends a session, and its cache when no other has it. The lock is held.
func (s *Sessions) drop(id [sha256.Size]byte, one *session) {
	one.end()
	delete(s.all, id)
	s.leave(one)
}
