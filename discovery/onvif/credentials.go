package onvif

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery"
)

// The names of discoveryProperties: Akri's.
const (
	credentialList    = "device_credential_list"
	credentialRefList = "device_credential_ref_list"
	usernamePrefix    = "username_"
	passwordPrefix    = "password_"
	defaultCamera     = "default"
)

// login is a user of cameras.
type login struct{ username, password string }

// credentials are the logins by UUID, in lower case. That of defaultCamera is for
// every other camera.
type credentials map[string]login

// of returns nil when nothing is known of a camera.
func (c credentials) of(uuid string) *login {
	for _, key := range []string{uuid, defaultCamera} {
		if l, ok := c[key]; ok {
			return &l
		}
	}
	return nil
}

// parseCredentials reads Akri's four ways to give credentials. A later one overrides
// an earlier one for the same camera. What cannot be read is left out, as in Akri, and
// told to warn.
func parseCredentials(request discovery.Request) credentials {
	p := properties{request}
	c := credentials{}
	for _, name := range p.list(credentialList) {
		c.addList(p, name)
	}
	for _, name := range p.list(credentialRefList) {
		c.addRefList(p, name)
	}
	for name := range request.Properties {
		id, ok := strings.CutPrefix(name, usernamePrefix)
		if !ok || id == "" {
			continue
		}
		if username, ok := p.text(name); ok {
			password, _ := p.text(passwordPrefix + id)
			// Names of properties are C identifiers, which have no "-".
			c.set(strings.ReplaceAll(id, "_", "-"), username, password)
		}
	}
	return c
}

func (c credentials) set(uuid, username, password string) {
	c[strings.ToLower(uuid)] = login{username, password}
}

// addList reads {"<uuid>": {"username", "password"?, "base64encoded"?}}.
func (c credentials) addList(p properties, name string) {
	text, ok := p.named(credentialList, name)
	if !ok {
		return
	}
	var entries map[string]struct {
		Username *string `json:"username"`
		Password string  `json:"password"`
		Base64   bool    `json:"base64encoded"`
	}
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		p.Warnf("discoveryProperties of %s: %s is no JSON object of credentials by UUID: ignored", Name, name)
		return
	}
	for uuid, e := range entries {
		if e.Username == nil {
			p.Warnf("discoveryProperties of %s: %s has no username for %.64q: ignored", Name, name, uuid)
			continue
		}
		if e.Base64 {
			decoded, err := base64.StdEncoding.DecodeString(e.Password)
			if err != nil || !utf8.Valid(decoded) {
				p.Warnf("discoveryProperties of %s: %s: the password of %.64q is not base64 of text: ignored", Name, name, uuid)
				decoded = nil
			}
			e.Password = string(decoded)
		}
		c.set(uuid, *e.Username, e.Password)
	}
}

// addRefList reads {"<uuid>": {"username_ref", "password_ref"?}}.
func (c credentials) addRefList(p properties, name string) {
	text, ok := p.named(credentialRefList, name)
	if !ok {
		return
	}
	var entries map[string]struct {
		UsernameRef string `json:"username_ref"`
		PasswordRef string `json:"password_ref"`
	}
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		p.Warnf("discoveryProperties of %s: %s is no JSON object of references by UUID: ignored", Name, name)
		return
	}
	for uuid, e := range entries {
		username, ok := p.named(name, e.UsernameRef)
		if !ok || username == "" {
			continue
		}
		password := ""
		if e.PasswordRef != "" {
			password, _ = p.named(name, e.PasswordRef)
		}
		c.set(uuid, username, password)
	}
}

// properties are discoveryProperties as text.
type properties struct{ discovery.Request }

// text is false for a property that is not there. One that is not UTF-8 counts as not
// there, as in Akri.
func (p properties) text(name string) (string, bool) {
	value, ok := p.Properties[name]
	if ok && !utf8.Valid(value) {
		p.Warnf("discoveryProperties of %s: %s is not UTF-8: ignored", Name, name)
		return "", false
	}
	return string(value), ok
}

// named is text of a property that another one names.
func (p properties) named(by, name string) (string, bool) {
	if _, ok := p.Properties[name]; !ok {
		p.Warnf("discoveryProperties of %s: %s names %.64q, which is not there", Name, by, name)
	}
	return p.text(name)
}

// list reads a JSON list of names.
func (p properties) list(name string) []string {
	text, ok := p.text(name)
	if !ok {
		return nil
	}
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		p.Warnf("discoveryProperties of %s: %s is no JSON list of names of properties: ignored", Name, name)
		return nil
	}
	return names
}
