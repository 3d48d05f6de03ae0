package ui

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/test/await"
)

// apiServer is as much of one as a session needs: users by token, who see the pods of
// their namespace, or of all.
type apiServer struct {
	*httptest.Server
	mu    sync.Mutex
	users map[string]string // namespace by token; "*" is all
	names map[string]string // of users by token, if it is not the token
	fails map[string]string // verb by token of the requests that fail
	lists map[string]int    // of all objects, by kind
	open  map[string]int    // watches by token
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{users: map[string]string{"admins": "*", "alices": "alice", "nobodys": "nothing"},
		names: map[string]string{"alices": "system:serviceaccount:alice:viewer"}, fails: map[string]string{},
		lists: map[string]int{}, open: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, token)
}

func (s *apiServer) count(in map[string]int, what string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in[what] += by
}

// counted returns what was counted.
func (s *apiServer) counted(in map[string]int, what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return in[what]
}

// change changes what users may do.
func (s *apiServer) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	sees, known := s.users[token]
	user, fails := cmp.Or(s.names[token], token), s.fails[token]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`,
			reason, user+": "+reason, code)
	}
	namespace, kind := "", path.Base(r.URL.Path)
	if _, rest, found := strings.Cut(r.URL.Path, "/namespaces/"); found {
		namespace, _, _ = strings.Cut(rest, "/")
	}
	group := path.Dir(strings.TrimPrefix(strings.TrimPrefix(strings.Replace(r.URL.Path, "/namespaces/"+namespace, "", 1), "/apis/"), "/api/"))
	switch {
	case !known:
		refuse(http.StatusUnauthorized, "Unauthorized")
	case kind == "selfsubjectreviews":
		fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":%q}}}`, user)
	case sees != "*" && sees != namespace, fails == "watch" && r.URL.Query().Get("watch") != "":
		refuse(http.StatusForbidden, "Forbidden")
	case fails == "list" && r.URL.Query().Get("watch") == "":
		refuse(http.StatusInternalServerError, "InternalError")
	case r.URL.Query().Get("sendInitialEvents") != "":
		refuse(http.StatusUnprocessableEntity, "Invalid") // it is an old one: clients list
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		s.count(s.open, token, 1)
		<-r.Context().Done()
		s.count(s.open, token, -1)
	default:
		if r.URL.Query().Get("limit") != "1" {
			s.count(s.lists, kind, 1)
		}
		items := []any{}
		if kind == "pods" {
			for _, ns := range []string{"alice", "bob"} {
				if namespace == "" || namespace == ns {
					items = append(items, map[string]any{"metadata": map[string]any{"namespace": ns, "name": ns + "s-pod", "uid": ns},
						"spec":   map[string]any{"containers": []any{map[string]any{"name": "main", "resources": map[string]any{"limits": map[string]any{"akri.sh/cameras": "1"}}}}},
						"status": map[string]any{"phase": "Pending"}})
				}
			}
		}
		kinds := map[string]string{"configurations": "Configuration", "instances": "Instance", "deviceslices": "DeviceSlice", "slotclaims": "SlotClaim", "pods": "Pod", "nodes": "Node"}
		kinds["resourceclaims"], kinds["deviceclasses"] = "ResourceClaim", "DeviceClass"
		json.NewEncoder(w).Encode(map[string]any{"kind": kinds[kind] + "List", "apiVersion": group, "metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	}
}

// sessionsOf serves the page of an API server over HTTPS.
func sessionsOf(t *testing.T, api *apiServer, most int, c clock.WithTicker) (*Sessions, *httptest.Server) {
	return sessionsWith(t, api, Options{Cluster: "test", MaxSessions: most}, c)
}

func sessionsWith(t *testing.T, api *apiServer, o Options, c clock.WithTicker) (*Sessions, *httptest.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	// The server's own credentials, which must not be used for anybody.
	sessions := NewSessions(ctx, &rest.Config{Host: api.URL, BearerToken: "admins"}, o, c)
	server := httptest.NewTLSServer(sessions.Handler())
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
	})
	return sessions, server
}

// client is a browser's, with cookies of its own.
func client(t *testing.T, server *httptest.Server) *http.Client {
	c := noFollow(t)
	c.Transport = server.Client().Transport
	return c
}

func login(t *testing.T, c *http.Client, server *httptest.Server, token, namespace string) *http.Response {
	t.Helper()
	response, err := c.PostForm(server.URL+"/login", url.Values{"token": {token}, "namespace": {namespace}})
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response
}

// firstUpdate is what a page gets when it connects; what has come of it when the server
// answers otherwise.
func firstUpdate(t *testing.T, c *http.Client, server *httptest.Server) (int, string) {
	t.Helper()
	response, err := c.Get(server.URL + "/api/updates")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if data, found := strings.CutPrefix(lines.Text(), "data: "); found && strings.Contains(data, `"seq"`) {
			return response.StatusCode, data
		}
	}
	t.Logf("no update came before the end: %v", lines.Err())
	return response.StatusCode, ""
}

// Each user sees what his token lets him see, and nothing with a token that is not good.
func TestSessions(t *testing.T) {
	api := newAPIServer(t)
	_, server := sessionsOf(t, api, 10, clock.RealClock{})
	if code, _ := firstUpdate(t, client(t, server), server); code != http.StatusUnauthorized {
		t.Errorf("without a token it answers %d, want 401", code)
	}
	if response, err := client(t, server).PostForm(server.URL+"/login", url.Values{"token": {strings.Repeat("x", longestToken+1)}}); err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(body(t, response), "too long for a cookie") {
		t.Errorf("a token that does not fit in a cookie: %v, %v; want 400 and that it is too long", response, err)
	}
	for token, code := range map[string]int{"": 400, "wrong": 401, "not a token": 400, "nobodys": 403} {
		c := client(t, server)
		if response := login(t, c, server, token, ""); response.StatusCode != code || len(response.Cookies()) != 0 {
			t.Errorf("with the token %q it answers %s and sets %v, want %d and no cookie", token, response.Status, response.Cookies(), code)
		}
	}

	admin, alice := client(t, server), client(t, server)
	for c, token := range map[*http.Client]string{admin: "admins", alice: "alices"} {
		response := login(t, c, server, token, "")
		if strict := response.Header.Get("Strict-Transport-Security"); strict == "" {
			t.Error("over TLS browsers are not asked to stay with TLS")
		}
		if response.StatusCode != http.StatusSeeOther || len(response.Cookies()) != 2 {
			t.Fatalf("the login of %s: %s, cookies %v", token, response.Status, response.Cookies())
		}
		for _, cookie := range response.Cookies() {
			if !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || !strings.HasPrefix(cookie.Name, "__Host-") {
				t.Errorf("the cookie %s is for more than this page", cookie)
			}
		}
	}
	if _, all := firstUpdate(t, admin, server); !strings.Contains(all, "bobs-pod") || !strings.Contains(all, "alices-pod") || !strings.Contains(all, `"missing":[]`) {
		t.Errorf("the admin sees %s", all)
	}
	if _, own := firstUpdate(t, alice, server); strings.Contains(own, "bob") || !strings.Contains(own, "alices-pod") || !strings.Contains(own, "pods of other namespaces") {
		t.Errorf("alice sees %s", own)
	}
	if response, _ := get(t, alice, server.URL+"/api/pods/bob/bobs-pod", nil); response.StatusCode != http.StatusNotFound {
		t.Errorf("of bob's pod alice hears %s", response.Status)
	}
	// A proxy's header counts before the cookie.
	response, body := get(t, alice, server.URL+"/api/pods/bob/bobs-pod", func(r *http.Request) { r.Header.Set("Authorization", "Bearer admins") })
	if response.StatusCode != http.StatusOK {
		t.Errorf("with the admin's token in a header: %s %s", response.Status, body)
	}
	// Another site cannot log anybody in or out.
	r, _ := http.NewRequest(http.MethodPost, server.URL+"/logout", nil)
	r.Header.Set("Origin", "https://evil.example")
	if response, err := alice.Do(r); err != nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("another site's logout: %v, %v", response, err)
	}
	if response, err := alice.Post(server.URL+"/logout", "", nil); err != nil || response.StatusCode != http.StatusSeeOther {
		t.Errorf("the logout: %v, %v", response, err)
	}
	if code, _ := firstUpdate(t, alice, server); code != http.StatusUnauthorized {
		t.Errorf("after the logout it answers %d, want 401", code)
	}
}

// sessions is how many there are.
func (s *Sessions) sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func body(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// streamOf opens the stream of updates, and returns it when the first has come.
func streamOf(t *testing.T, c *http.Client, page string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	response, err := c.Get(page + "/api/updates")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	for !strings.HasPrefix(lines.Text(), `data: {"seq"`) {
		if !lines.Scan() {
			t.Fatalf("the page gets nothing: %v", lines.Err())
		}
	}
	return response, lines
}

// Requests with tokens that are not good end nobody's session, and cannot be many.
func TestBadTokensEndNoSession(t *testing.T) {
	api := newAPIServer(t)
	sessions, server := sessionsOf(t, api, 1, clock.RealClock{})
	admin := client(t, server)
	login(t, admin, server, "admins", "")
	id := idOf("admins", "")
	at := func() *session {
		sessions.mu.Lock()
		defer sessions.mu.Unlock()
		return sessions.all[id]
	}
	before := at()
	if before == nil {
		t.Fatal("the login opens no session")
	}
	codes := map[int]int{}
	for i := range 60 {
		response, _ := get(t, client(t, server), server.URL+"/api/alive", func(r *http.Request) { r.Header.Set("Authorization", fmt.Sprint("Bearer bogus", i)) })
		codes[response.StatusCode]++
	}
	if codes[http.StatusUnauthorized] == 0 || codes[http.StatusTooManyRequests] == 0 || codes[http.StatusUnauthorized]+codes[http.StatusTooManyRequests] != 60 {
		t.Errorf("bad tokens are answered %v, want the first 401 and too many 429", codes)
	}
	if at() != before {
		t.Error("bad tokens have ended a user's session")
	}
	if response, _ := get(t, admin, server.URL+"/api/alive", nil); response.StatusCode != http.StatusNoContent {
		t.Errorf("after them the user gets %s", response.Status)
	}
}

// A session ends when its user may see less, while its watches go on.
func TestSessionsEndWhenPermissionsShrink(t *testing.T) {
	api := newAPIServer(t)
	c := testclock.NewFakeClock(time.Now())
	sessions, server := sessionsOf(t, api, 10, c)
	admin := client(t, server)
	login(t, admin, server, "admins", "")
	_, lines := streamOf(t, admin, server.URL)
	await.That(t, "the session to wait for the clock", func() bool { return c.Waiters() >= 2 })
	api.mu.Lock()
	api.users["admins"] = "alice"
	api.mu.Unlock()
	await.That(t, "the session to end", func() bool {
		c.Step(check)
		return sessions.sessions() == 0
	})
	for lines.Scan() { // it is closed
	}
	if response, _ := get(t, admin, server.URL+"/api/pods/bob/bobs-pod", nil); response.StatusCode == http.StatusOK {
		t.Error("a pod is shown that the user may no longer see")
	}
}

// A session ends when its token is revoked, with the page that is open, and when nobody
// has looked at it for a while.
func TestSessionsEnd(t *testing.T) {
	api := newAPIServer(t)
	c := testclock.NewFakeClock(time.Now())
	sessions, server := sessionsOf(t, api, 10, c)
	admin := client(t, server)
	login(t, admin, server, "admins", "")
	login(t, client(t, server), server, "alices", "")
	open, err := admin.Get(server.URL + "/api/updates")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	for lines := bufio.NewScanner(open.Body); !strings.HasPrefix(lines.Text(), `data: {"seq"`); {
		if !lines.Scan() {
			t.Fatal("the page gets nothing")
		}
	}
	// Of each session the guard and the Hub wait for it.
	await.That(t, "both sessions to wait for the clock", func() bool { return c.Waiters() >= 4 })
	c.Step(idle + check)
	await.That(t, "the session that nobody looks at to end, and the other to stay", func() bool {
		return sessions.sessions() == 1
	})
	if code, _ := firstUpdate(t, admin, server); code != http.StatusOK {
		t.Errorf("the session with an open page answers %d", code)
	}
	api.revoke("admins")
	await.That(t, "the page of the revoked token to be closed", func() bool {
		c.Step(check)
		return sessions.sessions() == 0
	})
	for lines := bufio.NewScanner(open.Body); lines.Scan(); {
	}
	if response, body := get(t, admin, server.URL+"/", nil); response.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "does not accept the token") {
		t.Errorf("with a revoked token: %s\n%s", response.Status, body)
	}
}

// There are no more sessions than allowed: one that nobody looks at makes room.
func TestSessionsAreBounded(t *testing.T) {
	api := newAPIServer(t)
	_, server := sessionsOf(t, api, 1, clock.RealClock{})
	admin, alice := client(t, server), client(t, server)
	login(t, admin, server, "admins", "")
	if response := login(t, alice, server, "alices", ""); response.StatusCode != http.StatusSeeOther {
		t.Errorf("a second user, while nobody looks at the first's page: %s", response.Status)
	}
	open, err := alice.Get(server.URL + "/api/updates")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	for lines := bufio.NewScanner(open.Body); !strings.HasPrefix(lines.Text(), `data: {"seq"`); {
		if !lines.Scan() {
			t.Fatal("the page gets nothing")
		}
	}
	response, body := get(t, admin, server.URL+"/", nil)
	if response.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(body, "1 sessions of this page are open") {
		t.Errorf("while the second user's page is open the first gets %s\n%s", response.Status, body)
	}
}
