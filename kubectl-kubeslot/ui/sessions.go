package ui

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
)

const (
	// idle is how long a session without an open page is kept, for its history.
	idle = 15 * time.Minute
	// check is how often it is asked whether a session's token is still good.
	check = time.Minute
	// opening is how long it may take to read the cluster's objects.
	opening = 30 * time.Second
	// DefaultSessions is how many users may be logged in at once: each has the objects
	// of the cluster in memory, as far as he may see them.
	DefaultSessions = 20

	// longestToken is how many bytes of a token fit in a cookie, of which a browser keeps
	// 4096 with its name and attributes.
	longestToken = 3800

	tokenCookie, namespaceCookie = "__Host-kubeslot-token", "__Host-kubeslot-namespace"
)

// Sessions serves the page to users who show a token of the API server, in an
// Authorization header or by logging in. A session reads the cluster with that token: a
// user sees what the API server lets him see, and the server's own permissions are not
// used. Safe for concurrent use.
type Sessions struct {
	config  *rest.Config // without credentials
	cluster string
	most    int
	clock   clock.WithTicker
	logins  flowcontrol.RateLimiter
	ctx     context.Context

	mu  sync.Mutex
	all map[[sha256.Size]byte]*session
}

// session is what a user sees. Its fields are set once ready is closed.
type session struct {
	ready   chan struct{}
	end     context.CancelFunc
	viewer  *viewer
	err     error
	streams int // open pages; of Sessions.mu
	used    time.Time
	known   bool // the API server takes its token; of Sessions.mu
}

// NewSessions makes Sessions, which end with ctx. Of the config the address of the API
// server is used, and not the credentials.
func NewSessions(ctx context.Context, config *rest.Config, cluster string, most int, c clock.WithTicker) *Sessions {
	config = rest.AnonymousClientConfig(config)
	config.RateLimiter, config.UserAgent = nil, "kubeslot-ui"
	return &Sessions{config: config, cluster: cluster, most: most, clock: c, ctx: ctx,
		logins: flowcontrol.NewTokenBucketRateLimiter(5, 20), all: map[[sha256.Size]byte]*session{}}
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
	token, namespace := credentials(r)
	if token == "" {
		code := http.StatusUnauthorized
		if r.URL.Path == "/" { // what a user asks for who has not logged in yet
			code = http.StatusOK
		}
		s.form(w, code, "")
		return nil
	}
	v, err := s.open(r.Context(), token, namespace)
	if err != nil {
		s.form(w, status(err), err.Error())
		return nil
	}
	return v
}

// errBusy is said when sessions are begun too fast, by logging in or with a header.
var errBusy = errors.New("too many try to log in: try again in a moment")

func status(err error) int {
	switch {
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests
	case apierrors.IsUnauthorized(err):
		return http.StatusUnauthorized
	case apierrors.IsForbidden(err):
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}

// credentials are the token and the namespace that a request shows. A header, which a
// proxy sets, counts before a cookie.
func credentials(r *http.Request) (token, namespace string) {
	if c, err := r.Cookie(namespaceCookie); err == nil {
		namespace = c.Value
	}
	if scheme, given, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(given), namespace
	}
	if c, err := r.Cookie(tokenCookie); err == nil {
		return c.Value, namespace
	}
	return "", namespace
}

// login opens a session for a token, which the browser keeps in a cookie that scripts
// cannot read and other sites cannot send.
func (s *Sessions) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	token, namespace := strings.TrimSpace(r.PostFormValue("token")), strings.TrimSpace(r.PostFormValue("namespace"))
	switch {
	case token == "":
		s.form(w, http.StatusBadRequest, "a token is needed")
		return
	case len(token) > longestToken:
		s.form(w, http.StatusBadRequest, "the token is too long for a cookie: send it in an Authorization header, or use `kubectl kubeslot ui`")
		return
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || c == ';' || c == ',' || c == '"' || c == '\\' }):
		s.form(w, http.StatusBadRequest, "this is not a token")
		return
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		s.form(w, http.StatusBadRequest, "the namespace is not the name of one")
		return
	}
	if _, err := s.open(r.Context(), token, namespace); err != nil {
		s.form(w, status(err), err.Error())
		return
	}
	for name, value := range map[string]string{tokenCookie: token, namespaceCookie: namespace} {
		http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Sessions) logout(w http.ResponseWriter, r *http.Request) {
	if token, namespace := credentials(r); token != "" {
		s.close(idOf(token, namespace), nil)
	}
	for _, name := range []string{tokenCookie, namespaceCookie} {
		http.SetCookie(w, &http.Cookie{Name: name, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func idOf(token, namespace string) [sha256.Size]byte {
	return sha256.Sum256([]byte(namespace + "\x00" + token))
}

// open returns the viewer of a token, and makes a session when there is none.
func (s *Sessions) open(ctx context.Context, token, namespace string) (*viewer, error) {
	id := idOf(token, namespace)
	s.mu.Lock()
	one := s.all[id]
	if one == nil {
		if !s.logins.TryAccept() {
			s.mu.Unlock()
			return nil, errBusy
		}
		own, end := context.WithCancel(s.ctx)
		one = &session{ready: make(chan struct{}), end: end}
		s.all[id] = one
		go s.start(own, id, one, token, namespace)
	}
	one.used = s.clock.Now()
	s.mu.Unlock()
	select {
	case <-one.ready:
		return one.viewer, one.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// makeRoom ends the session that has been idle for the longest when there are too many.
func (s *Sessions) makeRoom() error {
	known := 0
	var oldest *session
	var at [sha256.Size]byte
	for id, one := range s.all {
		if !one.known {
			continue
		}
		known++
		if one.streams == 0 && (oldest == nil || one.used.Before(oldest.used)) {
			oldest, at = one, id
		}
	}
	if known < s.most {
		return nil
	}
	if oldest == nil {
		return fmt.Errorf("%d users have this page open, which is as many as there may be: try again later, or use `kubectl kubeslot ui`", s.most)
	}
	oldest.end()
	delete(s.all, at)
	return nil
}

// start makes a session ready, and keeps it until it ends.
func (s *Sessions) start(ctx context.Context, id [sha256.Size]byte, one *session, token, namespace string) {
	kube, live, err := s.prepare(ctx, one, token, namespace)
	if err != nil {
		one.err = err
		s.close(id, one)
		close(one.ready)
		return
	}
	close(one.ready)
	klog.FromContext(ctx).Info("Opened a session of the page", "user", one.viewer.about.User, "namespace", one.viewer.about.Namespace)
	go one.viewer.Run(ctx)
	s.guard(ctx, id, one, kube, live)
}

// prepare reads the cluster with the token, and makes the session's viewer.
func (s *Sessions) prepare(ctx context.Context, one *session, token, namespace string) (kubernetes.Interface, *source.Live, error) {
	ready, cancel := context.WithTimeoutCause(ctx, opening, errors.New("the API server took too long"))
	defer cancel()
	config := rest.CopyConfig(s.config)
	config.BearerToken = token
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	user, err := whoIs(ready, kube)
	if err != nil {
		return nil, nil, err
	}
	// Only now, so that nobody without a good token ends another's session.
	s.mu.Lock()
	err = s.makeRoom()
	one.known = err == nil
	s.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	if namespace == "" {
		namespace = homeOf(user)
	}
	from, err := source.New(config, namespace)
	if err != nil {
		return nil, nil, err
	}
	live, err := watching(ctx, ready, from)
	if err != nil {
		return nil, nil, err
	}
	hub := NewHub(live, About{Cluster: s.cluster, User: user, Namespace: namespace, Logout: true}, s.clock)
	one.viewer = &viewer{Hub: hub, events: from.Events, opened: func(by int) { s.count(one, by) }, done: ctx.Done()}
	return kube, live, nil
}

// watching starts watches, which last as long as ctx, and gives up when ready is done.
func watching(ctx, ready context.Context, from *source.Source) (*source.Live, error) {
	own, end := context.WithCancel(ctx)
	stop := context.AfterFunc(ready, end)
	live, err := from.Watch(own)
	if !stop() && err == nil {
		err = context.Cause(ready)
	}
	if err != nil {
		end()
		return nil, err
	}
	return live, nil
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

// guard ends a session that is idle, whose token is no longer good, or which may see
// less than when it began.
func (s *Sessions) guard(ctx context.Context, id [sha256.Size]byte, one *session, kube kubernetes.Interface, live *source.Live) {
	ticker := s.clock.NewTicker(check)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		s.mu.Lock()
		unused := one.streams == 0 && s.clock.Since(one.used) > idle
		s.mu.Unlock()
		_, err := whoIs(ctx, kube)
		lost := live.Check(ctx)
		if unused || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(lost) || apierrors.IsUnauthorized(lost) {
			klog.FromContext(ctx).Info("Ended a session of the page", "user", one.viewer.about.User, "idle", unused)
			s.close(id, one)
			return
		}
	}
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
		one.end()
		delete(s.all, id)
	}
}

var formPage = template.Must(template.New("form").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Kubeslot: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/theme.css">
<link rel="stylesheet" href="/page/style.css">
</head>
<body class="ready">
<main class="login">
<form class="card" method="post" action="/login">
<div class="brand"><img src="/page/icon.svg" alt="" width="26" height="26"><h1>Kubeslot{{with .Cluster}} · {{.}}{{end}}</h1></div>
{{with .Problem}}<p class="notice bad" role="alert">{{.}}</p>{{end}}
<p class="muted">You see what your token lets you see. It stays in this browser, and goes to the API server alone.</p>
<label>Token <input name="token" type="password" autocomplete="off" required autofocus></label>
<label>Namespace, if you may not see all <input name="namespace" autocomplete="off" spellcheck="false"></label>
<button class="primary" type="submit">Log in</button>
<p class="muted small">A token of a ServiceAccount: <code>kubectl create token NAME</code></p>
</form>
</main>
</body>
</html>
`))

// form answers with the form to log in, and why it is needed.
func (s *Sessions) form(w http.ResponseWriter, code int, problem string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = formPage.Execute(w, map[string]string{"Cluster": s.cluster, "Problem": problem})
}
