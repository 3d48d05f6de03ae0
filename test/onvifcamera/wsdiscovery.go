package onvifcamera

import (
	"bytes"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The namespaces of WS-Discovery messages. Tests of strictness depend on these
// being compared to the letter.
const (
	nsSOAP       = "http://www.w3.org/2003/05/soap-envelope"
	nsAddressing = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
	nsDiscovery  = "http://schemas.xmlsoap.org/ws/2005/04/discovery"
	nsNetwork    = "http://www.onvif.org/ver10/network/wsdl"
	nsDevice     = "http://www.onvif.org/ver10/device/wsdl"

	toEverybody = "urn:schemas-xmlsoap-org:ws:2005:04:discovery"
	anonymous   = nsAddressing + "/role/anonymous"

	// maxDatagram is the most that SOAP-over-UDP allows in practice: UDP's limit.
	maxDatagram = 65507
)

// inquiry is a Probe or a Resolve.
type inquiry struct {
	XMLName xml.Name `xml:"http://www.w3.org/2003/05/soap-envelope Envelope"`
	Header  struct {
		Action    string `xml:"http://schemas.xmlsoap.org/ws/2004/08/addressing Action"`
		MessageID string `xml:"http://schemas.xmlsoap.org/ws/2004/08/addressing MessageID"`
		To        string `xml:"http://schemas.xmlsoap.org/ws/2004/08/addressing To"`
	} `xml:"http://www.w3.org/2003/05/soap-envelope Header"`
	Body struct {
		Probe *struct {
			Types  string `xml:"http://schemas.xmlsoap.org/ws/2005/04/discovery Types"`
			Scopes struct {
				MatchBy string `xml:"MatchBy,attr"`
				Text    string `xml:",chardata"`
			} `xml:"http://schemas.xmlsoap.org/ws/2005/04/discovery Scopes"`
		} `xml:"http://schemas.xmlsoap.org/ws/2005/04/discovery Probe"`
		Resolve *struct {
			Address string `xml:"http://schemas.xmlsoap.org/ws/2004/08/addressing EndpointReference>Address"`
		} `xml:"http://schemas.xmlsoap.org/ws/2005/04/discovery Resolve"`
	} `xml:"http://www.w3.org/2003/05/soap-envelope Body"`
}

// read answers what comes in on a socket until the camera ends.
func (c *Camera) read(l *link, conn net.PacketConn) {
	buffer := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-c.done:
				return
			case <-time.After(100 * time.Millisecond): // the interface is down
				continue
			}
		}
		c.mu.Lock()
		deaf := c.deaf
		c.mu.Unlock()
		if !deaf {
			c.answer(l, conn == l.group, bytes.Clone(buffer[:n]), from)
		}
	}
}

// answer answers a Probe that matches, or a Resolve of this camera, once for each
// message ID, sender and interface.
func (c *Camera) answer(l *link, multicast bool, message []byte, from net.Addr) {
	var q inquiry
	if err := xml.Unmarshal(message, &q); err != nil {
		return // another's message, or nonsense
	}
	var reply func() string
	switch action := strings.TrimSpace(q.Header.Action); {
	case action == nsDiscovery+"/Probe" && q.Body.Probe != nil:
		c.count("Probe")
		types, err := expandTypes(message)
		if err != nil || !c.hasTypes(types) || !c.hasScopes(q.Body.Probe.Scopes.Text, q.Body.Probe.Scopes.MatchBy) {
			c.config.Log("probe from %s does not match: types %q, scopes %q, %v", from, types, q.Body.Probe.Scopes.Text, err)
			return
		}
		reply = func() string { return c.matches(l, "ProbeMatch", q.Header.MessageID, !c.config.NoXAddrsInMatches) }
	case action == nsDiscovery+"/Resolve" && q.Body.Resolve != nil:
		c.count("Resolve")
		if strings.TrimSpace(q.Body.Resolve.Address) != c.address() {
			return
		}
		reply = func() string { return c.matches(l, "ResolveMatch", q.Header.MessageID, true) }
	default:
		return
	}
	// Debian's onvif-tools have the same message ID twice in a second, in two processes.
	if id := fmt.Sprint(l.name, from, q.Header.MessageID); !c.firstTime(id) {
		return
	}
	var delay time.Duration
	if multicast { // many may answer: WS-Discovery 3.1.3
		if n, err := rand.Int(rand.Reader, big.NewInt(int64(c.config.MaxDelay))); err == nil {
			delay = time.Duration(n.Int64())
		}
	}
	time.AfterFunc(delay, func() {
		if _, err := l.own.WriteTo([]byte(reply()), from); err == nil {
			c.config.Log("answered %s on %s", from, l.name)
		}
	})
}

func (c *Camera) firstTime(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[id] {
		return false
	}
	if len(c.seen) > 10_000 {
		clear(c.seen)
	}
	c.seen[id] = true
	return true
}

// expandTypes returns a Probe's types as "namespace local", with the prefixes that
// are in scope where the types stand. A prefix that is not declared is an error:
// strict cameras ignore such probes.
func expandTypes(message []byte) ([]string, error) {
	decoder := xml.NewDecoder(bytes.NewReader(message))
	var scopes []map[string]string // of each open element
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil, nil // no Types: anything is wanted
		}
		switch t := token.(type) {
		case xml.StartElement:
			scope := map[string]string{}
			for _, a := range t.Attr {
				switch {
				case a.Name.Space == "xmlns":
					scope[a.Name.Local] = a.Value
				case a.Name.Space == "" && a.Name.Local == "xmlns":
					scope[""] = a.Value
				}
			}
			scopes = append(scopes, scope)
			if t.Name.Space != nsDiscovery || t.Name.Local != "Types" {
				continue
			}
			var text string
			if err := decoder.DecodeElement(&text, &t); err != nil {
				return nil, err
			}
			var types []string
			for _, name := range strings.Fields(text) {
				prefix, local, ok := strings.Cut(name, ":")
				if !ok {
					prefix, local = "", name
				}
				namespace, found := "", false
				for _, s := range slices.Backward(scopes) {
					if namespace, found = s[prefix]; found {
						break
					}
				}
				if !found && prefix != "" {
					return nil, fmt.Errorf("prefix %q of type %s is not declared", prefix, name)
				}
				types = append(types, namespace+" "+local)
			}
			return types, nil
		case xml.EndElement:
			scopes = scopes[:len(scopes)-1]
		}
	}
}

func (c *Camera) hasTypes(wanted []string) bool {
	var has []string
	for _, t := range c.config.Types {
		has = append(has, strings.NewReplacer("dn:", nsNetwork+" ", "tds:", nsDevice+" ").Replace(t))
	}
	return !slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(has, w) })
}

// hasScopes compares as WS-Discovery 5.1 wants it.
func (c *Camera) hasScopes(text, matchBy string) bool {
	for _, wanted := range strings.Fields(text) {
		ok := slices.ContainsFunc(c.scopes(), func(scope string) bool {
			switch matchBy {
			case "", nsDiscovery + "/rfc3986":
				return isPathPrefix(wanted, scope)
			case nsDiscovery + "/strcmp0":
				return wanted == scope
			}
			return false
		})
		if !ok {
			return false
		}
	}
	return true
}

// isPathPrefix compares scheme and authority regardless of case, and the path by
// whole segments.
func isPathPrefix(prefix, scope string) bool {
	p, err1 := url.Parse(prefix)
	s, err2 := url.Parse(scope)
	if err1 != nil || err2 != nil || !strings.EqualFold(p.Scheme, s.Scheme) || !strings.EqualFold(p.Host, s.Host) {
		return false
	}
	want, have := strings.TrimSuffix(p.Path, "/"), s.Path
	return have == want || strings.HasPrefix(have, want+"/")
}

func (c *Camera) address() string { return "urn:uuid:" + c.config.UUID }

// Hello announces the camera on each interface.
func (c *Camera) Hello() {
	for _, l := range c.links {
		c.announce(l, "Hello", c.endpoint(l, !c.config.NoXAddrsInMatches))
	}
}

// Bye says on each interface that the camera leaves.
func (c *Camera) Bye() {
	for _, l := range c.links {
		c.announce(l, "Bye", `<wsa:EndpointReference><wsa:Address>`+escape(c.address())+`</wsa:Address></wsa:EndpointReference>`)
	}
}

func (c *Camera) announce(l *link, kind, content string) {
	message := c.envelope(kind, toEverybody, "", `<wsd:`+kind+`>`+content+`</wsd:`+kind+`>`)
	if _, err := l.own.WriteTo([]byte(message), l.to); err != nil {
		c.config.Log("%s on %s: %v", kind, l.name, err)
	}
}

func (c *Camera) matches(l *link, kind, relatesTo string, withXAddrs bool) string {
	// Probe answers with ProbeMatches, Resolve with ResolveMatches.
	return c.envelope(kind+"es", anonymous, relatesTo,
		`<wsd:`+kind+`es><wsd:`+kind+`>`+c.endpoint(l, withXAddrs)+`</wsd:`+kind+`></wsd:`+kind+`es>`)
}

// endpoint is what Hello, ProbeMatch and ResolveMatch tell of the camera.
func (c *Camera) endpoint(l *link, withXAddrs bool) string {
	xaddrs := ""
	if withXAddrs {
		xaddrs = `<wsd:XAddrs>` + escape(strings.Join(c.xaddrsOn(l), " ")) + `</wsd:XAddrs>`
	}
	c.mu.Lock()
	version := c.version
	c.mu.Unlock()
	return fmt.Sprintf(`<wsa:EndpointReference><wsa:Address>%s</wsa:Address></wsa:EndpointReference>`+
		`<wsd:Types>%s</wsd:Types><wsd:Scopes>%s</wsd:Scopes>%s<wsd:MetadataVersion>%d</wsd:MetadataVersion>`,
		escape(c.address()), escape(c.types()), escape(strings.Join(c.scopes(), " ")), xaddrs, version)
}

func (c *Camera) envelope(action, to, relatesTo, body string) string {
	if relatesTo != "" {
		relatesTo = `<wsa:RelatesTo>` + escape(relatesTo) + `</wsa:RelatesTo>`
	}
	c.mu.Lock()
	c.messages++
	number := c.messages
	c.mu.Unlock()
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>`+
		`<s:Envelope xmlns:s="%s" xmlns:wsa="%s" xmlns:wsd="%s" xmlns:dn="%s" xmlns:tds="%s"><s:Header>`+
		`<wsa:MessageID>urn:uuid:%s</wsa:MessageID>%s<wsa:To>%s</wsa:To><wsa:Action>%s/%s</wsa:Action>`+
		`<wsd:AppSequence InstanceId="%d" MessageNumber="%d"/></s:Header><s:Body>%s</s:Body></s:Envelope>`,
		nsSOAP, nsAddressing, nsDiscovery, nsNetwork, nsDevice,
		newUUID(), relatesTo, to, nsDiscovery, action, c.started.Unix(), number, body)
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
