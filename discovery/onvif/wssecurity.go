package onvif

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"time"
)

const (
	nsSecurity = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
	nsUtility  = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"

	passwordDigest = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0#PasswordDigest"
	base64Binary   = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary"
)

// usernameToken returns the SOAP header of a WS-UsernameToken: base64 of
// sha1(nonce + created + password). now is the time of the camera's clock: cameras
// refuse what was created more than some seconds ago, or will be.
func usernameToken(l login, now time.Time) string {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	created := now.UTC().Format("2006-01-02T15:04:05.000Z")
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`<w:Security s:mustUnderstand="1" xmlns:w="%s" xmlns:u="%s"><w:UsernameToken>`+
		`<w:Username>%s</w:Username><w:Password Type="%s">%s</w:Password>`+
		`<w:Nonce EncodingType="%s">%s</w:Nonce><u:Created>%s</u:Created></w:UsernameToken></w:Security>`,
		nsSecurity, nsUtility, escape(l.username), passwordDigest, digestOf(nonce, created, l.password), base64Binary, encode(nonce), created)
}

func digestOf(nonce []byte, created, password string) string {
	digest := sha1.New()
	digest.Write(nonce)
	digest.Write([]byte(created))
	digest.Write([]byte(password))
	return base64.StdEncoding.EncodeToString(digest.Sum(nil))
}
