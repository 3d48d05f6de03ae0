package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// policy lets the page load what this server serves and nothing else, and keeps its
// scripts from making markup of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guarded sets the headers that keep other sites out of the page and the page off other
// sites, and refuses what no page of ours sends.
func guarded(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.TLS != nil { // browsers pass over it when they cannot verify the certificate
			h.Set("Strict-Transport-Security", "max-age=31536000") // a year, in seconds
		}
		// A link from elsewhere may open the page, and nothing else.
		if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && r.URL.Path != "/" {
			http.Error(w, "another site asks for this", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onLoopback refuses requests for a host that is not this machine: a name of an attacker
// that resolves to 127.0.0.1 would make the page his own (DNS rebinding). Any port is
// right, for the page may be reached through a tunnel.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) {
			http.Error(w, "this page is served on localhost only: open it as localhost or 127.0.0.1", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether host, with a port or without, is localhost or an address of
// this machine alone.
func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// keyed serves those who know a key, which the first request has in its address and
// further ones in a cookie: other users of the machine can connect to localhost too.
type keyed struct {
	key string
	// once opens the page one time: it is for the command line of a browser, which other users see.
	once   string
	spent  atomic.Bool
	cookie string
	next   http.Handler
}

// newKeyed makes a keyed with random keys. The port tells cookies of several pages on
// localhost apart, since cookies are the same for all ports.
func newKeyed(port string, next http.Handler) *keyed {
	return &keyed{key: rand.Text(), once: rand.Text(), cookie: "kubeslot-ui-" + port, next: next}
}

func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" && k.opens(r.URL.Query().Get("key")) {
		http.SetCookie(w, &http.Cookie{Name: k.cookie, Value: k.key, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther) // so that the key is not in the address bar
		return
	}
	if c, err := r.Cookie(k.cookie); err != nil || !equal(c.Value, k.key) {
		http.Error(w, "Open the address that `kubectl kubeslot ui` has printed: it has the key to this page.", http.StatusUnauthorized)
		return
	}
	k.next.ServeHTTP(w, r)
}

func (k *keyed) opens(given string) bool {
	return equal(given, k.key) || equal(given, k.once) && k.spent.CompareAndSwap(false, true)
}

func equal(given, key string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(key)) == 1
}
