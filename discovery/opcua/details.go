package opcua

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	scheme = "opc.tcp"
	// defaultPort is the one that is registered for OPC UA.
	defaultPort = "4840"
	// maxURLBytes is what a Hello message may hold (Part 6, 7.1.2.3).
	maxURLBytes = 4096
	// maxURLs is how many discoveryUrls a Configuration may have.
	maxURLs = 1000
)

// defaultURL is Akri's: the discovery server of the machine itself.
const defaultURL = "opc.tcp://localhost:4840/"

// details are a Configuration's discoveryDetails: Akri's, and serversOnNetwork.
type details struct {
	Method *struct {
		Standard *struct {
			DiscoveryURLs    []string `json:"discoveryUrls"`
			ServersOnNetwork bool     `json:"serversOnNetwork"`
		} `json:"standard"`
	} `json:"opcuaDiscoveryMethod"`
	ApplicationNames *discovery.FilterList `json:"applicationNames"`
}

// plan is what the details ask for.
type plan struct {
	targets   []target // each once, in the order of the details
	onNetwork bool     // also what discovery servers know from their networks
	names     *discovery.FilterList
}

// Validate returns what Discover would refuse the request for, without any I/O: an error
// that wraps discovery.ErrInvalid, or nil.
func Validate(request discovery.Request) error {
	_, err := parse(request)
	return err
}

// parse reads the details.
func parse(request discovery.Request) (plan, error) {
	var d details
	if err := request.Decode(Name, &d); err != nil {
		return plan{}, err
	}
	if d.Method == nil || d.Method.Standard == nil {
		return plan{}, discovery.Invalidf("discoveryDetails of %s: opcuaDiscoveryMethod.standard is missing; {} is enough", Name)
	}
	if err := d.ApplicationNames.Validate(Name + ": applicationNames"); err != nil {
		return plan{}, err
	}
	urls := d.Method.Standard.DiscoveryURLs
	if urls == nil {
		urls = []string{defaultURL}
	}
	if len(urls) > maxURLs {
		return plan{}, discovery.Invalidf("discoveryDetails of %s: opcuaDiscoveryMethod.standard.discoveryUrls has %d entries, of %d that are allowed", Name, len(urls), maxURLs)
	}
	p := plan{onNetwork: d.Method.Standard.ServersOnNetwork, names: d.ApplicationNames}
	for i, text := range urls {
		t, err := parseTarget(text)
		if err != nil {
			return plan{}, discovery.Invalidf("discoveryDetails of %s: opcuaDiscoveryMethod.standard.discoveryUrls[%d]: %w", Name, i, err)
		}
		if !slices.ContainsFunc(p.targets, func(other target) bool { return other.url == t.url }) {
			p.targets = append(p.targets, t)
		}
	}
	return p, nil
}

// target is the URL of an endpoint of a server.
type target struct {
	url        string // as it was written
	host, port string // as it was written, without brackets, and as a number
	path       string // "", or begins with a slash; escaped
}

func (t target) address() string { return net.JoinHostPort(t.host, t.port) }

func urlOf(host, port, path string) string {
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)} // escapes
	return u.String() + path
}

// parseTarget reads an opc.tcp URL.
func parseTarget(text string) (target, error) {
	if len(text) > maxURLBytes {
		return target{}, fmt.Errorf("a URL of %d bytes, of %d that are allowed", len(text), maxURLBytes)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return target{}, fmt.Errorf("%.100q is not a URL", text)
	}
	u, err := url.Parse(text)
	if err != nil {
		if parse, ok := errors.AsType[*url.Error](err); ok {
			err = parse.Err // without the text, which may be long
		}
		return target{}, fmt.Errorf("%.100q is not a URL: %w", text, err)
	}
	t := target{url: text, host: u.Hostname(), port: u.Port(), path: u.EscapedPath()}
	if u.RawQuery != "" {
		t.path += "?" + u.RawQuery
	}
	switch {
	case u.Scheme != scheme:
		return target{}, fmt.Errorf("%.100q: want %s://<host>:<port>/", text, scheme)
	case t.host == "" || u.User != nil:
		return target{}, fmt.Errorf("%.100q: want %s://<host>:<port>/", text, scheme)
	case t.port == "":
		t.port = defaultPort
	}
	if port, err := strconv.ParseUint(t.port, 10, 16); err != nil || port == 0 {
		return target{}, fmt.Errorf("%.100q: the port is not one of 1 to 65535", text)
	}
	return t, nil
}
