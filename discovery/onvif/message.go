package onvif

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	nsSOAP       = "http://www.w3.org/2003/05/soap-envelope"
	nsAddressing = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
	nsDiscovery  = "http://schemas.xmlsoap.org/ws/2005/04/discovery"
	nsNetwork    = "http://www.onvif.org/ver10/network/wsdl"
	nsDevice     = "http://www.onvif.org/ver10/device/wsdl"

	// maxDatagram is how long a message may be. Those of real cameras have 1 to 4 KiB.
	maxDatagram = 16 << 10

	// maxMatches is how many devices one message may announce: a device answers for itself.
	maxMatches      = 16
	maxUUIDBytes    = 128
	maxVersionBytes = 16
	maxXAddrs       = 8
	maxXAddrBytes   = 512
	maxScopesBytes  = 4 << 10
	maxScopes       = 64
	onvifScope      = "onvif://www.onvif.org/"
	transmitterType = "NetworkVideoTransmitter"
	deviceType      = "{" + nsDevice + "}Device"
)

// probes returns the messages of a round. A device must have all types of a probe to
// answer it, so there is one for each type: old cameras know the first, and those of
// profile T may have only the second. Prefixes are declared: strict cameras ignore
// Akri's probes (akri#486).
func probes() [][]byte {
	probe := func(prefix, namespace, local string) []byte {
		return discoveryMessage("Probe", fmt.Sprintf(`<d:Probe><d:Types xmlns:%s="%s">%s:%s</d:Types></d:Probe>`, prefix, namespace, prefix, local))
	}
	return [][]byte{probe("dn", nsNetwork, transmitterType), probe("tds", nsDevice, "Device")}
}

// resolve asks a camera that told its endpoint reference only where its service is.
func resolve(address string) []byte {
	return discoveryMessage("Resolve", `<d:Resolve><a:EndpointReference><a:Address>`+escape(address)+`</a:Address></a:EndpointReference></d:Resolve>`)
}

func discoveryMessage(action, body string) []byte {
	return fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="%s" xmlns:a="%s" xmlns:d="%s"><s:Header>`+
		`<a:Action s:mustUnderstand="1">%s/%s</a:Action><a:MessageID>urn:uuid:%s</a:MessageID>`+
		`<a:ReplyTo><a:Address>%s/role/anonymous</a:Address></a:ReplyTo>`+
		`<a:To s:mustUnderstand="1">urn:schemas-xmlsoap-org:ws:2005:04:discovery</a:To></s:Header><s:Body>%s</s:Body></s:Envelope>`,
		nsSOAP, nsAddressing, nsDiscovery, nsDiscovery, action, uuid.NewUUID(), nsAddressing, body)
}

// endpoint is what a message tells of one camera.
type endpoint struct {
	EndpointReference struct{ Address string }
	Types             string
	Scopes            string
	XAddrs            string
	MetadataVersion   string
}

// message is an answer to a Probe or a Resolve, a Hello or a Bye. Elements are found
// by their local names, since not every camera has the namespaces right.
type message struct {
	Body struct {
		ProbeMatches   struct{ ProbeMatch []endpoint }
		ResolveMatches struct{ ResolveMatch []endpoint }
		Hello, Bye     *endpoint
	}
}

// kind is what sort of message announces a camera.
type kind int

const (
	probeMatch kind = iota
	resolveMatch
	hello
)

// announcement is that a camera is there, and what it tells of itself.
type announcement struct {
	kind    kind
	uuid    string
	address string // of the endpoint reference, as written
	scopes  []string
	xaddrs  []string // valid ones
	version string   // of the metadata
	brief   bool     // it tells no XAddrs, or not what it is: it may be no camera
}

// parseMessage returns the cameras that a datagram announces, and the UUIDs of those
// that leave. Devices that are no cameras are left out.
func parseMessage(datagram []byte) (present []announcement, leaving []string, err error) {
	var m message
	if err := unmarshal(datagram, &m); err != nil {
		return nil, nil, err
	}
	add := func(k kind, endpoints ...endpoint) {
		for _, e := range endpoints {
			if a, ok := e.announcement(k); ok && len(present) < maxMatches {
				present = append(present, a)
			}
		}
	}
	add(probeMatch, m.Body.ProbeMatches.ProbeMatch...)
	add(resolveMatch, m.Body.ResolveMatches.ResolveMatch...)
	if m.Body.Hello != nil {
		add(hello, *m.Body.Hello)
	}
	if m.Body.Bye != nil {
		if id, ok := parseUUID(m.Body.Bye.EndpointReference.Address); ok {
			leaving = append(leaving, id)
		}
	}
	return present, leaving, nil
}

func (e endpoint) announcement(k kind) (announcement, bool) {
	a := announcement{kind: k, version: strings.TrimSpace(e.MetadataVersion)}
	if len(a.version) > maxVersionBytes {
		a.version = a.version[:maxVersionBytes]
	}
	var ok bool
	if a.uuid, ok = parseUUID(e.EndpointReference.Address); !ok {
		return a, false
	}
	a.address = strings.TrimSpace(e.EndpointReference.Address)
	if len(e.Scopes) > maxScopesBytes { // the last whole one that fits
		e.Scopes = e.Scopes[:strings.LastIndexAny(e.Scopes[:maxScopesBytes], " \t\r\n")+1]
	}
	// What is kept holds no more of the message than itself.
	e.Scopes = strings.Clone(e.Scopes)
	for xaddr := range strings.FieldsSeq(e.XAddrs) {
		if len(a.xaddrs) < maxXAddrs && validXAddr(xaddr) && !slices.Contains(a.xaddrs, xaddr) {
			a.xaddrs = append(a.xaddrs, strings.Clone(xaddr))
		}
	}
	types := strings.Fields(e.Types)
	a.scopes = strings.Fields(e.Scopes)
	a.scopes = a.scopes[:min(len(a.scopes), maxScopes)]
	// Who answers a probe is of the type asked for, also if it does not say so.
	silent := len(types) == 0 && len(a.scopes) == 0
	a.brief = len(a.xaddrs) == 0 || silent && k != probeMatch
	return a, silent || isCamera(types, a.scopes)
}

// parseUUID returns Akri's form of an endpoint reference's address: without "urn:"
// and "uuid:", in lower case.
func parseUUID(address string) (string, bool) {
	id := strings.ToLower(strings.TrimSpace(address))
	id = strings.TrimPrefix(strings.TrimPrefix(id, "urn:"), "uuid:")
	printable := !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
	return id, id != "" && len(id) <= maxUUIDBytes && printable
}

// isCamera tells cameras from other ONVIF devices, such as door controllers, and from
// what else answers to WS-Discovery: printers, and Windows' and Samba's computers.
// types are expanded names.
func isCamera(types, scopes []string) bool {
	for _, t := range types {
		if _, local, _ := strings.Cut(t, "}"); local == transmitterType {
			return true
		}
	}
	var kinds []string // the profiles and the types of the device, as scopes
	onvif := slices.Contains(types, deviceType)
	for _, s := range scopes {
		rest, ok := cutPrefixFold(s, onvifScope)
		if !ok {
			continue
		}
		onvif = true
		if kind := strings.ToLower(rest); strings.HasPrefix(kind, "profile/") || strings.HasPrefix(kind, "type/") {
			kinds = append(kinds, kind)
		}
	}
	// One that says nothing of its kind may be a camera. Others say that they are.
	return onvif && (len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind string) bool {
		switch kind {
		case "profile/streaming", "profile/s", "profile/t", "profile/m", "type/video_encoder", "type/networkvideotransmitter",
			"type/network_video_transmitter", "type/ptz", "type/video_analytics":
			return true
		}
		return false
	}))
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

func validXAddr(xaddr string) bool {
	if len(xaddr) > maxXAddrBytes || strings.ContainsFunc(xaddr, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	u, err := url.Parse(xaddr)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.Fragment == ""
}

// hostAddress returns the IP address in a URL; it is invalid for a name.
func hostAddress(xaddr string) netip.Addr {
	u, err := url.Parse(xaddr)
	if err != nil {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap()
}
