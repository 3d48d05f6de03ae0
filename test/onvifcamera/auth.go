package onvifcamera

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxClockSkew is how far a UsernameToken's time may be from the camera's, as
// with Axis: a client that goes by its own clock is refused by a camera that is
// off by more.
const maxClockSkew = 5 * time.Second

// passwordDigest is the type of Web Services Security UsernameToken Profile 1.0.
const passwordDigest = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0#PasswordDigest"

// usernameToken is what a SOAP header may have.
type usernameToken struct {
	Username string
	Password struct {
		Type  string `xml:",attr"`
		Value string `xml:",chardata"`
	}
	Nonce   string
	Created string
}

// authenticator decides who may call what.
type authenticator struct {
	Config
	now   func() time.Time
	realm string

	mu     *sync.Mutex
	nonces map[string]bool   // of UsernameTokens that were used
	counts map[string]string // of HTTP digest: our nonces with their last nc
}

func newAuthenticator(config Config, now func() time.Time) authenticator {
	return authenticator{
		Config: config, now: now, realm: "Simulated camera",
		mu: &sync.Mutex{}, nonces: map[string]bool{}, counts: map[string]string{},
	}
}

// allows returns nil when the request shows that it comes from the user. HTTP
// digest goes first, as ONVIF Core 5.9.1 orders it.
func (a authenticator) allows(r *http.Request, token *usernameToken) error {
	if a.User == "" {
		return nil
	}
	if header := r.Header.Get("Authorization"); header != "" && a.Auth != AuthWSS {
		return a.allowsDigest(r.Method, header)
	}
	if token != nil && a.Auth != AuthDigest {
		return a.allowsToken(token)
	}
	return fmt.Errorf("no credentials of kind %s", a.Auth)
}

// allowsToken checks a digest: base64(sha1(nonce + created + password)).
func (a authenticator) allowsToken(token *usernameToken) error {
	if token.Username != a.User {
		return fmt.Errorf("user %q", token.Username)
	}
	if token.Password.Type != passwordDigest {
		return fmt.Errorf("password of type %q", token.Password.Type)
	}
	nonce, err := base64.StdEncoding.DecodeString(strings.TrimSpace(token.Nonce))
	if err != nil || len(nonce) == 0 {
		return fmt.Errorf("nonce %q: %v", token.Nonce, err)
	}
	created, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(token.Created))
	if err != nil {
		return err
	}
	if skew := created.Sub(a.now()).Abs(); skew > maxClockSkew {
		return fmt.Errorf("created %s, which is %s off", token.Created, skew)
	}
	sum := sha1.Sum([]byte(string(nonce) + strings.TrimSpace(token.Created) + a.Password))
	want := base64.StdEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(want), []byte(strings.TrimSpace(token.Password.Value))) != 1 {
		return fmt.Errorf("digest of user %q is wrong", token.Username)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.RefuseReplays && a.nonces[string(nonce)] {
		return errors.New("nonce was used before")
	}
	a.nonces[string(nonce)] = true
	return nil
}

// challenge adds the WWW-Authenticate headers: with MD5 and SHA-256, ONVIF's two.
func (a authenticator) challenge(header http.Header) {
	for _, algorithm := range []string{"MD5", "SHA-256"} {
		if a.DigestAlgorithm != "" && a.DigestAlgorithm != algorithm {
			continue
		}
		nonce := newUUID()
		a.mu.Lock()
		a.counts[nonce] = ""
		a.mu.Unlock()
		header.Add("WWW-Authenticate", fmt.Sprintf(
			`Digest realm="%s", qop="auth,auth-int", algorithm=%s, nonce="%s", opaque="%s"`, a.realm, algorithm, nonce, "5ccc069c"))
	}
}

// allowsDigest checks an Authorization header by RFC 7616.
func (a authenticator) allowsDigest(method, header string) error {
	scheme, rest, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Digest") {
		return fmt.Errorf("authorization scheme %s", scheme)
	}
	// Parameters are a list with commas; a media type's have semicolons.
	_, p, err := mime.ParseMediaType("x/x; " + semicolons(rest))
	if err != nil {
		return fmt.Errorf("authorization %q: %w", rest, err)
	}
	var newHash func() hash.Hash
	switch algorithm := strings.ToUpper(p["algorithm"]); {
	case a.DigestAlgorithm != "" && algorithm != a.DigestAlgorithm:
		return fmt.Errorf("digest algorithm %q was not offered", algorithm)
	case algorithm == "MD5":
		newHash = md5.New
	case algorithm == "SHA-256":
		newHash = sha256.New
	default:
		return fmt.Errorf("digest algorithm %q", algorithm)
	}
	sum := func(parts ...string) string {
		h := newHash()
		h.Write([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(h.Sum(nil))
	}
	if p["username"] != a.User || p["realm"] != a.realm || p["qop"] != "auth" || p["opaque"] != "5ccc069c" {
		return fmt.Errorf("user %q, realm %q, qop %q, opaque %q", p["username"], p["realm"], p["qop"], p["opaque"])
	}
	if p["uri"] != devicePath && p["uri"] != mediaPath {
		return fmt.Errorf("uri %q", p["uri"])
	}
	want := sum(sum(a.User, a.realm, a.Password), p["nonce"], p["nc"], p["cnonce"], p["qop"], sum(method, p["uri"]))
	if subtle.ConstantTimeCompare([]byte(want), []byte(p["response"])) != 1 {
		return fmt.Errorf("digest of user %q is wrong", p["username"])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ours := a.counts[p["nonce"]]
	if !ours || len(p["nc"]) != 8 || p["nc"] <= last {
		return fmt.Errorf("nonce %q with nc %q after %q", p["nonce"], p["nc"], last)
	}
	a.counts[p["nonce"]] = p["nc"]
	return nil
}

// semicolons replaces the commas between parameters, not those within quotes.
func semicolons(list string) string {
	quoted := false
	return strings.Map(func(r rune) rune {
		if r == '"' {
			quoted = !quoted
		}
		if r == ',' && !quoted {
			return ';'
		}
		return r
	}, list)
}
