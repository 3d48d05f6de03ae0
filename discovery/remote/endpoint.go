package remote

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	// maxNameBytes is how long a handler's name may be.
	maxNameBytes = 253

	// maxSocketPath is how long a unix socket's path may be (sun_path, without NUL).
	maxSocketPath = 107
)

// address is where a handler serves.
type address struct {
	network string // "unix" or "tcp"
	dial    string // a path, or host:port
	text    string // as in a Source's ID
}

// tls reports whether the handler serves TLS.
func (a address) tls() bool { return strings.HasPrefix(a.text, "https://") }

// parse returns where the handler of a registration serves. Its errors are about what
// will never work, however often it is registered.
//
// A handler sees the directory of discovery handlers under a mount of its own, so of a
// unix socket's path only the base name counts. Akri's handlers register network
// endpoints as http URLs.
func parse(request *pb.RegisterDiscoveryHandlerRequest, directory string) (address, error) {
	name := request.GetName()
	switch {
	case name == "":
		return address{}, fmt.Errorf("the handler has no name")
	case len(name) > maxNameBytes:
		return address{}, fmt.Errorf("the handler's name has %d bytes, of %d that are allowed", len(name), maxNameBytes)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return address{}, fmt.Errorf("the handler's name %q has spaces or control characters", name)
	}
	endpoint := request.GetEndpoint()
	switch request.GetEndpointType() {
	case pb.RegisterDiscoveryHandlerRequest_UDS:
		return parseUnix(endpoint, directory)
	case pb.RegisterDiscoveryHandlerRequest_NETWORK:
		return parseNetwork(endpoint)
	default:
		return address{}, fmt.Errorf("endpoint type %d is unknown: want UDS (0) or NETWORK (1)", request.GetEndpointType())
	}
}

func parseUnix(endpoint, directory string) (address, error) {
	path := strings.TrimPrefix(endpoint, "unix:") // as gRPC names it
	base := filepath.Base(path)
	switch {
	case strings.Contains(endpoint, "\x00"):
		return address{}, fmt.Errorf("endpoint %.200q has a NUL", endpoint)
	case path == "" || strings.HasSuffix(path, "/") || base == "." || base == "..":
		return address{}, fmt.Errorf("endpoint %.200q is not the path of a unix socket", endpoint)
	case base == pb.RegistrationSocket:
		return address{}, fmt.Errorf("endpoint %.200q is the agent's own socket", endpoint)
	}
	path = filepath.Join(directory, base)
	if len(path) > maxSocketPath {
		return address{}, fmt.Errorf("endpoint %.200q: %.200s is longer than the %d bytes of a unix socket's path", endpoint, path, maxSocketPath)
	}
	return address{network: "unix", dial: path, text: path}, nil
}

func parseNetwork(endpoint string) (address, error) {
	hostPort, scheme := endpoint, "http"
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil:
			return address{}, fmt.Errorf("endpoint %.200q is not a URL: want http://host:port", endpoint)
		case u.Scheme != "http" && u.Scheme != "https":
			return address{}, fmt.Errorf("endpoint %.200q: want http://host:port or https://host:port", endpoint)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/"):
			return address{}, fmt.Errorf("endpoint %.200q has more than http://host:port", endpoint)
		}
		hostPort, scheme = u.Host, u.Scheme
	}
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return address{}, fmt.Errorf("endpoint %.200q: want http://host:port: %w", endpoint, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return address{}, fmt.Errorf("endpoint %.200q: port %.20q is not a number from 1 to 65535", endpoint, port)
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == '/' || r == '@' }) {
		return address{}, fmt.Errorf("endpoint %.200q has no host that could be asked", endpoint)
	}
	hostPort = net.JoinHostPort(strings.ToLower(host), port)
	return address{network: "tcp", dial: hostPort, text: scheme + "://" + hostPort}, nil
}
