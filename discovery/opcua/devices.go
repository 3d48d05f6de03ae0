package opcua

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/kubeslot/kubeslot/discovery"
)

// Properties of each device.
const (
	// URLProperty is Akri's: where to connect to the server. It is the ID too.
	URLProperty = "OPCUA_DISCOVERY_URL"
	// NameProperty and URIProperty are the application's name and URI, if it has them.
	NameProperty = "OPCUA_APPLICATION_NAME"
	URIProperty  = "OPCUA_APPLICATION_URI"
	// AdvertisedURLProperty is what the server itself calls its URL, if that is another.
	AdvertisedURLProperty = "OPCUA_ADVERTISED_URL"
)

const (
	maxNameBytes = 1024

	// maxServers is how many servers a URL may lead to, or one that another server named, and
	// maxURLsOfServer how many URLs of its own each may have. So no URL takes the place of what
	// others lead to.
	maxServers, maxServersOfLearned = 2500, 10
	maxURLsOfServer                 = 16
)

// server is an application to report.
type server struct {
	name, uri string
	own       []target // its opc.tcp URLs, in its order; at least one
	itself    bool     // that answered, and not one that a discovery server named
	elsewhere error    // why its first URL is no URL of it, if that is another than the one asked
}

// serversOf returns which of the applications that a URL answered with to report, at most most.
func serversOf(list []application, names *discovery.FilterList, most int) (servers []server) {
	for _, a := range list {
		// As Akri does: no client, no discovery server, and none that is a client too.
		if a.kind != typeServer || !names.Keeps(a.name) {
			continue
		}
		// A server that is no discovery server answers with itself alone.
		s := server{name: a.name, uri: a.uri, itself: len(list) == 1}
		for _, text := range a.discoveryURLs {
			if t, err := parseTarget(text); err == nil && len(s.own) < maxURLsOfServer {
				s.own = append(s.own, t)
			}
		}
		if len(s.own) > 0 {
			servers = append(servers, s)
		}
		if len(servers) == most {
			break
		}
	}
	return servers
}

// devicesOf returns the servers that a URL answered with as devices, and what the
// Configuration's author should know of them. known says which hosts this machine finds.
func devicesOf(servers []server, asked target, known map[string]bool) (devices []discovery.Device, warnings []string) {
	for _, a := range servers {
		where, guessed := a.locate(asked, known)
		advertised := a.own[0].url
		if guessed {
			warnings = append(warnings, fmt.Sprintf("the server %.100q, which %s names, has the URL %s, whose host is not known on this node: it is taken to be at %s",
				a.name, asked.url, advertised, where))
		}
		if a.elsewhere != nil {
			warnings = append(warnings, fmt.Sprintf("the server %.100q at %s calls its URL %s, where it does not "+
				"answer this node (%v): it is taken to be at %s", a.name, asked.url, advertised, a.elsewhere, where))
		}
		if t, err := parseTarget(where); err == nil && thisMachine(t.host) {
			warnings = append(warnings, fmt.Sprintf("%s is another server on each node, but one Instance for all: list the nodes' addresses in discoveryUrls instead", where))
		}
		d := discovery.Device{ID: where, Properties: map[string]string{URLProperty: where}}
		for key, value := range map[string]string{NameProperty: a.name, URIProperty: a.uri} {
			if value = printable(value); value != "" {
				d.Properties[key] = value
			}
		}
		if advertised != where {
			d.Properties[AdvertisedURLProperty] = advertised
		}
		devices = append(devices, d)
	}
	return devices, warnings
}

// locate returns the URL of a server. As in Akri it is the first opc.tcp URL of its own,
// if this machine knows the host of it. If not:
//
//   - A server that answered itself is where it was asked, as in Akri. Its path is its
//     own: Akri adds it to that of the URL asked. The same goes for one that does not
//     answer at its own URL.
//   - One that a discovery server named may have another URL with a host that is known.
//   - Else it is taken to be on the machine of the discovery server, on its own port:
//     most discovery servers are local ones. guessed says so. Akri takes the discovery
//     server's port too.
//
// A host like localhost is no address of a server that was asked under another.
func (s server) locate(asked target, known map[string]bool) (where string, guessed bool) {
	for _, t := range s.own {
		if s.elsewhere == nil && known[t.host] && (!thisMachine(t.host) || thisMachine(asked.host)) {
			return t.url, false
		}
		if s.itself {
			path := t.path
			if path == "" && asked.path == "/" {
				path = "/" // as in Akri
			}
			return urlOf(asked.host, asked.port, path), false
		}
	}
	return urlOf(asked.host, s.own[0].port, s.own[0].path), true
}

// thisMachine reports whether the host is a name for whatever machine uses it.
func thisMachine(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.IsLoopback() || a.IsUnspecified()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// printable is text that may be an environment variable's value.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) > maxNameBytes {
		text = strings.ToValidUTF8(text[:maxNameBytes], "")
	}
	return text
}
