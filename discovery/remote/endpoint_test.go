package remote

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	uds     = pb.RegisterDiscoveryHandlerRequest_UDS
	network = pb.RegisterDiscoveryHandlerRequest_NETWORK
)

func TestEndpoints(t *testing.T) {
	const dir = "/run/handlers"
	for name, tc := range map[string]struct {
		kind     pb.RegisterDiscoveryHandlerRequest_EndpointType
		endpoint string
		handler  string // "udev" when empty
		want     address
		wantErr  string // a part of the error
	}{
		"a socket in another mount": {uds, "/var/lib/akri/udev.sock", "", address{"unix", dir + "/udev.sock", dir + "/udev.sock"}, ""},
		"a socket in our directory": {uds, dir + "/udev.sock", "", address{"unix", dir + "/udev.sock", dir + "/udev.sock"}, ""},
		"a socket's base name":      {uds, "udev.sock", "", address{"unix", dir + "/udev.sock", dir + "/udev.sock"}, ""},
		"as gRPC names sockets":     {uds, "unix:///var/lib/akri/udev.sock", "", address{"unix", dir + "/udev.sock", dir + "/udev.sock"}, ""},
		"relative, as gRPC":         {uds, "unix:udev.sock", "", address{"unix", dir + "/udev.sock", dir + "/udev.sock"}, ""},
		"out of the directory":      {uds, "../../etc/udev.sock", "", address{"unix", dir + "/udev.sock", dir + "/udev.sock"}, ""},
		"no path":                   {uds, "", "", address{}, "not the path of a unix socket"},
		"the directory above":       {uds, "/var/lib/..", "", address{}, "not the path of a unix socket"},
		"a directory":               {uds, "/var/lib/akri/", "", address{}, "not the path of a unix socket"},
		"root":                      {uds, "/", "", address{}, "not the path of a unix socket"},
		"the agent's own socket":    {uds, "/x/" + pb.RegistrationSocket, "", address{}, "the agent's own socket"},
		"a NUL":                     {uds, "a\x00b", "", address{}, "NUL"},
		"longer than a path can be": {uds, "/x/" + strings.Repeat("u", 100), "", address{}, "107 bytes"},

		"as Akri's handlers have it":  {network, "http://10.0.0.5:10000", "", address{"tcp", "10.0.0.5:10000", "http://10.0.0.5:10000"}, ""},
		"without scheme":              {network, "10.0.0.5:10000", "", address{"tcp", "10.0.0.5:10000", "http://10.0.0.5:10000"}, ""},
		"with a slash":                {network, "http://10.0.0.5:10000/", "", address{"tcp", "10.0.0.5:10000", "http://10.0.0.5:10000"}, ""},
		"IPv6":                        {network, "http://[fd00::5]:10000", "", address{"tcp", "[fd00::5]:10000", "http://[fd00::5]:10000"}, ""},
		"IPv6 without scheme":         {network, "[fd00::5]:10000", "", address{"tcp", "[fd00::5]:10000", "http://[fd00::5]:10000"}, ""},
		"a name":                      {network, "http://UDEV.kube-system:10000", "", address{"tcp", "udev.kube-system:10000", "http://udev.kube-system:10000"}, ""},
		"TLS":                         {network, "https://h:1", "", address{"tcp", "h:1", "https://h:1"}, ""},
		"another scheme":              {network, "dns:///10.0.0.5:10000", "", address{}, "want http://host:port"},
		"a path":                      {network, "http://10.0.0.5:10000/x", "", address{}, "more than http://host:port"},
		"a user":                      {network, "http://root@10.0.0.5:10000", "", address{}, "more than http://host:port"},
		"a query":                     {network, "http://10.0.0.5:10000?x=y", "", address{}, "more than http://host:port"},
		"no port":                     {network, "http://10.0.0.5", "", address{}, "missing port"},
		"port 0":                      {network, "10.0.0.5:0", "", address{}, "1 to 65535"},
		"port 65536":                  {network, "10.0.0.5:65536", "", address{}, "1 to 65535"},
		"a service's name for a port": {network, "10.0.0.5:http", "", address{}, "1 to 65535"},
		"no host":                     {network, ":10000", "", address{}, "no host"},
		"a line break":                {network, "a\nb:10000", "", address{}, "no host"},
		"IPv6 without brackets":       {network, "fd00::5:10000", "", address{}, "too many colons"},
		"empty":                       {network, "", "", address{}, "missing port"},

		"an unknown type":  {7, "udev.sock", "", address{}, "endpoint type 7"},
		"a name of spaces": {uds, "udev.sock", "my udev", address{}, "spaces or control characters"},
		"a long name":      {uds, "udev.sock", strings.Repeat("u", 254), address{}, "254 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.handler == "" {
				tc.handler = "udev"
			}
			got, err := parse(&pb.RegisterDiscoveryHandlerRequest{Name: tc.handler, Endpoint: tc.endpoint, EndpointType: tc.kind}, dir)
			switch {
			case tc.wantErr == "" && err != nil:
				t.Errorf("parse() = %v", err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("parse() = %v, want an error with %q", err, tc.wantErr)
			case got != tc.want:
				t.Errorf("parse() = %+v, want %+v", got, tc.want)
			}
		})
	}
	if _, err := parse(&pb.RegisterDiscoveryHandlerRequest{Endpoint: "udev.sock"}, dir); err == nil {
		t.Error("a handler without a name is taken")
	}
}

// Whatever is registered, no socket outside of the directory is dialled, and nothing that
// is no host and port.
func FuzzEndpoint(f *testing.F) {
	for _, endpoint := range []string{"/a/b.sock", "unix:../x", "..", "http://h:1", "[::1%lo]:1", "http://[::1]:1/", "%2f:1"} {
		f.Add("udev", endpoint, true)
		f.Add("udev", endpoint, false)
	}
	f.Fuzz(func(t *testing.T, name, endpoint string, unix bool) {
		kind := network
		if unix {
			kind = uds
		}
		got, err := parse(&pb.RegisterDiscoveryHandlerRequest{Name: name, Endpoint: endpoint, EndpointType: kind}, "/run/handlers")
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if unix {
			if filepath.Dir(got.dial) != "/run/handlers" || filepath.Base(got.dial) == pb.RegistrationSocket {
				t.Errorf("parse(%q) dials %s", endpoint, got.dial)
			}
			return
		}
		if host, _, err := net.SplitHostPort(got.dial); err != nil || host == "" {
			t.Errorf("parse(%q) dials %q", endpoint, got.dial)
		}
	})
}
