package onvif

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// The example of ONVIF's Application Programmer's Guide 1.0, 6.1.1.3.
func TestPasswordDigest(t *testing.T) {
	nonce, err := base64.StdEncoding.DecodeString("LKqI6G/AikKCQrN0zqZFlg==")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := digestOf(nonce, "2010-09-16T07:50:45Z", "userpassword"), "tuOSpGlFlIXsozq4HFNeeGeFLEI="; got != want {
		t.Errorf("digest is %s, want %s", got, want)
	}
	token := usernameToken(login{"a<b", "secret"}, time.Date(2026, 11, 22, 9, 0, 0, 5e6, time.FixedZone("", 3600)))
	for _, want := range []string{"<w:Username>a&lt;b</w:Username>", "<u:Created>2026-11-22T08:00:00.005Z</u:Created>"} {
		if !strings.Contains(token, want) {
			t.Errorf("token has no %s: %s", want, token)
		}
	}
	if token == usernameToken(login{"a<b", "secret"}, time.Date(2026, 11, 22, 9, 0, 0, 5e6, time.FixedZone("", 3600))) {
		t.Error("the nonce is used twice")
	}
}

// The examples of RFC 7616, 3.9.1, RFC 2617, 3.5, and RFC 2069 as corrected by its errata.
func TestHTTPDigest(t *testing.T) {
	const (
		rfc7616 = `Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=%, nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"`
		cnonce  = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"
	)
	md5Header, shaHeader := strings.Replace(rfc7616, "%", "MD5", 1), strings.Replace(rfc7616, "%", "SHA-256", 1)
	mufasa := login{"Mufasa", "Circle of Life"}
	for name, tc := range map[string]struct {
		headers  []string
		login    login
		uri      string
		cnonce   string
		response string
		also     []string
		none     bool
	}{
		"MD5": {headers: []string{md5Header}, login: mufasa, uri: "/dir/index.html", cnonce: cnonce,
			response: "8ca523f5e9506fed4657c9700eebdbec", also: []string{"algorithm=MD5", "qop=auth,", "nc=00000001", `opaque="FQhe/`}},
		"SHA-256": {headers: []string{shaHeader}, login: mufasa, uri: "/dir/index.html", cnonce: cnonce,
			response: "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1", also: []string{"algorithm=SHA-256"}},
		"the stronger of two headers": {headers: []string{shaHeader, md5Header}, login: mufasa, uri: "/dir/index.html", cnonce: cnonce,
			response: "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"},
		"the stronger in one header, among others": {headers: []string{`Basic realm="x, Digest nonce=1", ` + md5Header + ", " + shaHeader + `, Negotiate`}, login: mufasa, uri: "/dir/index.html", cnonce: cnonce,
			response: "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"},
		"RFC 2617, no algorithm": {
			headers: []string{`Digest realm="testrealm@host.com", qop="auth,auth-int", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", opaque="5ccc069c403ebaf9f0171e9517f40e41"`},
			login:   login{"Mufasa", "Circle Of Life"}, uri: "/dir/index.html", cnonce: "0a4f113b", response: "6629fae49393a05397450978507c4ef1"},
		"RFC 2069, no qop": {
			headers: []string{`digest realm="testrealm@host.com",nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093",opaque="5ccc069c403ebaf9f0171e9517f40e41"`},
			login:   login{"Mufasa", "CircleOfLife"}, uri: "/dir/index.html", response: "1949323746fe6a43ef61f9606e7febea"},
		"Basic alone":            {headers: []string{`Basic realm="x"`}, none: true},
		"auth-int alone":         {headers: []string{`Digest qop="auth-int", nonce="x"`}, none: true},
		"an algorithm of others": {headers: []string{`Digest algorithm=SHA-512, nonce="x"`}, none: true},
		"no nonce":               {headers: []string{`Digest realm="x"`}, none: true},
		"nonsense":               {headers: []string{"", "=", `Digest "`, ",,,", `Digest nonce=`}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, ok := bestChallenge(tc.headers)
			if ok == tc.none {
				t.Fatalf("challenge %+v, %v", c, ok)
			}
			if tc.none {
				return
			}
			// The RFCs' examples are of GET.
			header := c.authorizationWith(tc.login, "GET", tc.uri, tc.cnonce)
			for _, want := range append(tc.also, `response="`+tc.response+`"`, `uri="`+tc.uri+`"`, `username="Mufasa"`) {
				if !strings.Contains(header, want) {
					t.Errorf("authorization has no %s: %s", want, header)
				}
			}
		})
	}
	c, _ := bestChallenge([]string{`Digest realm="a \"b\"", nonce="n"`})
	if header := c.authorization(login{`us"er`, "p"}, "POST", "/"); !strings.Contains(header, `username="us\"er", realm="a \"b\"", nonce="n"`) {
		t.Errorf("quotes are not escaped: %s", header)
	}
}
