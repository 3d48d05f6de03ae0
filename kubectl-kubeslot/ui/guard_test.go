package ui

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// noFollow is a client that keeps cookies and follows no redirects.
func noFollow(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get asks as the change of a request says, and returns the answer and its body.
func get(t *testing.T, client *http.Client, address string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// Whoever does not have the key, is another site, or has the page under another name,
// gets nothing.
func TestGuards(t *testing.T) {
	address := servePage(t, small(t, time.Now()))
	origin, _, _ := strings.Cut(address, "/?")
	known := noFollow(t)
	response, _ := get(t, known, address, nil)
	if response.StatusCode != http.StatusSeeOther || response.Header.Get("Location") != "/" {
		t.Fatalf("the address answers %s to %s, want a redirect without the key", response.Status, response.Header.Get("Location"))
	}
	cookie := response.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %s, want HttpOnly and SameSite=Strict", cookie)
	}
	host := func(name string) func(*http.Request) {
		return func(r *http.Request) {
			r.Host = name
			r.AddCookie(cookie) // which a client keeps for one name
		}
	}
	site := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", name) }
	}
	for name, tc := range map[string]struct {
		client *http.Client
		path   string
		change func(*http.Request)
		want   int
	}{
		"with the key":                      {known, "/", nil, http.StatusOK},
		"without":                           {noFollow(t), "/", nil, http.StatusUnauthorized},
		"data without":                      {noFollow(t), "/api/nodes/node-a", nil, http.StatusUnauthorized},
		"updates without":                   {noFollow(t), "/api/updates", nil, http.StatusUnauthorized},
		"a wrong key":                       {noFollow(t), "/?key=00000000000000000000000000000000", nil, http.StatusUnauthorized},
		"an empty key":                      {noFollow(t), "/?key=", nil, http.StatusUnauthorized},
		"a name that resolves to localhost": {known, "/", host("evil.example"), http.StatusMisdirectedRequest},
		"such a name with a port":           {known, "/api/nodes/node-a", host("evil.example:8080"), http.StatusMisdirectedRequest},
		"localhost in another name":         {known, "/", host("localhost.evil.example"), http.StatusMisdirectedRequest},
		"no name":                           {known, "/", host(" "), http.StatusMisdirectedRequest},
		"through a tunnel":                  {known, "/", host("localhost:9999"), http.StatusOK},
		"by IPv6":                           {known, "/", host("[::1]:9999"), http.StatusOK},
		"a script of another site":          {known, "/api/nodes/node-a", site("cross-site"), http.StatusForbidden},
		"another port of this machine":      {known, "/api/nodes/node-a", site("same-site"), http.StatusForbidden},
		"a link from another site":          {known, "/", site("cross-site"), http.StatusOK},
		"the page itself":                   {known, "/api/nodes/node-a", site("same-origin"), http.StatusOK},
		"what is not there":                 {known, "/api/nodes/nowhere", nil, http.StatusNotFound},
		"a file that is not the page's":     {known, "/page/..%2fpage.go", nil, http.StatusNotFound},
		"another method":                    {known, "/api/nodes/node-a", func(r *http.Request) { r.Method = http.MethodDelete }, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := get(t, tc.client, origin+tc.path, tc.change)
			if response.StatusCode != tc.want {
				t.Errorf("%s answers %s, want %d\n%s", tc.path, response.Status, tc.want, body)
			}
			if tc.want == http.StatusOK && !strings.HasPrefix(response.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';") {
				t.Errorf("the policy is %q", response.Header.Get("Content-Security-Policy"))
			}
		})
	}
}

// Other users see the command line of a browser that is started: what they find there opens nothing any more.
func TestAddressOnce(t *testing.T) {
	page, err := NewLocal("127.0.0.1:0", About{}, NewHub(newCluster(), clock.RealClock{}), noEvents)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { page.listener.Close() })
	open := func(address string) int {
		answer := httptest.NewRecorder()
		page.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, address, nil))
		return answer.Code
	}
	for i, want := range []int{http.StatusSeeOther, http.StatusUnauthorized} {
		if got := open(page.AddressOnce()); got != want {
			t.Errorf("the address for a browser answers %d the %d. time, want %d", got, i+1, want)
		}
		if got := open(page.Address()); got != http.StatusSeeOther {
			t.Errorf("the address that is printed answers %d", got)
		}
	}
}

func TestNewLocal(t *testing.T) {
	hub := NewHub(newCluster(), clock.RealClock{})
	for _, address := range []string{"0.0.0.0:0", ":8080", "192.0.2.1:80", "example.com:80", "localhost", "127.0.0.1:none"} {
		if l, err := NewLocal(address, About{}, hub, noEvents); err == nil {
			l.listener.Close()
			t.Errorf("it listens at %s", address)
		}
	}
}

// A page that connects gets everything, then what changes; one that comes back gets
// everything again.
func TestUpdatesAreStreamed(t *testing.T) {
	c := small(t, time.Now())
	address := servePage(t, c)
	origin, _, _ := strings.Cut(address, "/?")
	client := noFollow(t)
	get(t, client, address, nil)
	for range 2 {
		response, err := client.Get(origin + "/api/updates")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		next := func() string {
			for lines.Scan() {
				if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
					return data
				}
			}
			t.Fatalf("the stream has ended: %v", lines.Err())
			return ""
		}
		if about := next(); about != `{"cluster":"test"}` {
			t.Errorf("the page hears that it is of %s", about)
		}
		if first := next(); !strings.Contains(first, `"full":true`) {
			t.Errorf("the first update is %s", first)
		}
		c.fail(io.ErrUnexpectedEOF)
		if second := next(); !strings.Contains(second, `"error":"unexpected EOF"`) || strings.Contains(second, "devices") {
			t.Errorf("the second update is %s", second)
		}
		c.fail(nil)
		if third := next(); !strings.Contains(third, `"error":""`) {
			t.Errorf("the third update is %s", third)
		}
		response.Body.Close()
	}
}
