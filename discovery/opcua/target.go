package opcua

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery/netif"
)

const (
	scheme = "opc.tcp"
	// defaultPort is the one that is registered for OPC UA.
	defaultPort = "4840"
	// maxURLBytes is what a Hello message may hold (Part 6, 7.1.2.3).
	maxURLBytes = 4096
)

// target is the URL of an endpoint of a server.
type target struct {
	url        string // as it was written
	host, port string // as it was written, without brackets, and as a number
	path       string // "", or begins with a slash; escaped

	// A server named it. It may be on this node only if that one is near: on it too.
	named, near bool
}

func (t target) address() string { return net.JoinHostPort(t.host, t.port) }

// allowed returns an error for an address that is not connected to because a server names it.
func (t target) allowed(to netip.Addr) error {
	switch {
	case !t.named:
		return nil
	case t.near:
		return netif.CheckDevice(to)
	}
	return netif.CheckOther(to)
}

func urlOf(host, port, path string) string {
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)} // escapes
	return u.String() + path
}

// parseTarget reads an opc.tcp URL.
func parseTarget(text string) (target, error) {
	if len(text) > maxURLBytes {
		return target{}, fmt.Errorf("a URL of %d bytes, of %d that are allowed", len(text), maxURLBytes)
	}
	blank := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }
	if !utf8.ValidString(text) || strings.ContainsFunc(text, blank) {
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
