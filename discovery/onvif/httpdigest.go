package onvif

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// challenge is one "WWW-Authenticate: Digest" of RFC 7616.
type challenge struct {
	realm, nonce, opaque, algorithm, qop string
	newHash                              func() hash.Hash
}

// bestChallenge returns the strongest challenge of an answer's WWW-Authenticate headers.
// It is false when there is none of a kind known here.
func bestChallenge(headers []string) (best challenge, ok bool) {
	for _, header := range headers {
		for _, parameters := range parseChallenges(header) {
			c := challenge{
				realm: parameters["realm"], nonce: parameters["nonce"], opaque: parameters["opaque"], algorithm: parameters["algorithm"],
			}
			switch strings.TrimSuffix(strings.ToUpper(c.algorithm), "-SESS") {
			case "", "MD5":
				c.newHash = md5.New
			case "SHA-256":
				c.newHash = sha256.New
			default:
				continue
			}
			if qop, ok := parameters["qop"]; ok {
				offers := strings.FieldsFunc(strings.ToLower(qop), func(r rune) bool { return r == ',' || r == ' ' })
				if !slices.Contains(offers, "auth") {
					continue // auth-int: no camera is known to insist on it
				}
				c.qop = "auth"
			}
			if c.nonce != "" && (best.newHash == nil || c.newHash().Size() > best.newHash().Size()) {
				best = c
			}
		}
	}
	return best, best.newHash != nil
}

// authorization answers the challenge for one request. Each answer is the first with
// its nonce.
func (c challenge) authorization(l login, method, uri string) string {
	cnonce := make([]byte, 16)
	_, _ = rand.Read(cnonce) // never fails
	return c.authorizationWith(l, method, uri, hex.EncodeToString(cnonce))
}

func (c challenge) authorizationWith(l login, method, uri, cnonce string) string {
	const count = "00000001"
	h := func(parts ...string) string {
		sum := c.newHash()
		sum.Write([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(sum.Sum(nil))
	}
	a1 := h(l.username, c.realm, l.password)
	if strings.HasSuffix(strings.ToUpper(c.algorithm), "-SESS") {
		a1 = h(a1, c.nonce, cnonce)
	}
	a2 := h(method, uri)
	var response string
	if c.qop == "" { // RFC 2069
		response = h(a1, c.nonce, a2)
	} else {
		response = h(a1, c.nonce, count, cnonce, c.qop, a2)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `Digest username=%s, realm=%s, nonce=%s, uri=%s, response="%s"`,
		quote(l.username), quote(c.realm), quote(c.nonce), quote(uri), response)
	if c.algorithm != "" {
		fmt.Fprintf(&b, `, algorithm=%s`, c.algorithm)
	}
	if c.opaque != "" {
		fmt.Fprintf(&b, `, opaque=%s`, quote(c.opaque))
	}
	if c.qop != "" || strings.HasSuffix(strings.ToUpper(c.algorithm), "-SESS") {
		fmt.Fprintf(&b, `, cnonce="%s"`, cnonce)
	}
	if c.qop != "" {
		fmt.Fprintf(&b, `, qop=%s, nc=%s`, c.qop, count)
	}
	return b.String()
}

// quote makes a quoted-string of RFC 9110.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// parseChallenges returns the parameters, with names in lower case, of each Digest
// challenge in a header, which may list several, also of other schemes.
func parseChallenges(header string) (digests []map[string]string) {
	var current map[string]string // of the scheme that the next parameter belongs to
	rest := header
	for {
		rest = strings.TrimLeft(rest, " \t,")
		end := strings.IndexAny(rest, " \t,=")
		if rest == "" || end == 0 {
			return digests
		}
		if end < 0 {
			end = len(rest)
		}
		word := rest[:end]
		rest = strings.TrimLeft(rest[end:], " \t")
		if !strings.HasPrefix(rest, "=") { // a scheme
			current = nil
			if strings.EqualFold(word, "Digest") {
				current = map[string]string{}
				digests = append(digests, current)
			}
			continue
		}
		var value string
		value, rest = parseValue(strings.TrimLeft(rest[1:], " \t"))
		if current != nil {
			current[strings.ToLower(word)] = value
		}
	}
}

// parseValue returns the token or quoted-string that text begins with, and the rest.
func parseValue(text string) (value, rest string) {
	if !strings.HasPrefix(text, `"`) {
		if end := strings.IndexAny(text, " \t,"); end >= 0 {
			return text[:end], text[end:]
		}
		return text, ""
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:]
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}
