package ui

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// oauth2Proxy stands for an oauth2-proxy before the page: it knows its users by a cookie of its own,
// and sends their tokens in the header, whatever they send in it.
func oauth2Proxy(t *testing.T, page *httptest.Server, header, prefix string) *httptest.Server {
	t.Helper()
	to, err := url.Parse(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del(header)
			if c, err := r.In.Cookie("_oauth2_proxy"); err == nil {
				r.Out.Header.Set(header, prefix+c.Value)
			}
		},
	}
	server := httptest.NewTLSServer(proxy)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// Behind a proxy the page takes tokens from its header alone, and shows each user what the API
// server lets that token's user see.
func TestBehindAProxy(t *testing.T) {
	for header, prefix := range map[string]string{"Authorization": "Bearer ", "X-Forwarded-Access-Token": ""} {
		t.Run(header, func(t *testing.T) {
			api := newAPIServer(t)
			_, page := sessionsWith(t, api, Options{MaxSessions: 10, TokenHeader: header}, clock.RealClock{})
			proxy := oauth2Proxy(t, page, header, prefix)
			of := func(token string) *http.Client {
				c := client(t, proxy)
				to, err := url.Parse(proxy.URL)
				if err != nil {
					t.Fatal(err)
				}
				c.Jar.SetCookies(to, []*http.Cookie{{Name: "_oauth2_proxy", Value: token}})
				return c
			}
			if _, all := firstUpdate(t, of("admins"), proxy); !strings.Contains(all, "bobs-pod") {
				t.Errorf("the admin sees %s", all)
			}
			_, own := firstUpdate(t, of("alices"), proxy)
			if strings.Contains(own, "bob") || !strings.Contains(own, "alices-pod") {
				t.Errorf("alice sees %s", own)
			}
			if code, _ := firstUpdate(t, of("wrong"), proxy); code != http.StatusUnauthorized {
				t.Errorf("a token that is not good is answered %d", code)
			}
			// Who is not logged in at the proxy, or comes past it, shows no token.
			want := "has sent no token in the header " + header
			if response, text := get(t, client(t, proxy), proxy.URL+"/", nil); !strings.Contains(text, want) {
				t.Errorf("without a token it answers %s\n%s", response.Status, text)
			}
			if response, _ := get(t, client(t, page), page.URL+"/api/alive", func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: tokenCookie, Value: "admins"})
				r.Header.Set("X-Forwarded-User", "admins")
			}); response.StatusCode != http.StatusUnauthorized {
				t.Errorf("a cookie past the proxy is answered %s", response.Status)
			}
			// Another namespace is chosen in the form, and no token is kept in a cookie.
			response := login(t, of("admins"), proxy, "other", "bob")
			set := response.Cookies()
			if response.StatusCode != http.StatusSeeOther || len(set) != 1 || set[0].Name != namespaceCookie {
				t.Errorf("choosing a namespace: %s, cookies %v", response.Status, set)
			}
		})
	}
}
