package onvif

import (
	"strings"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

// maxTimeout bounds discoveryTimeoutSeconds: nothing is reported meanwhile.
const maxTimeout = 60 * time.Second

// Values of details.Identity.
const (
	identityAddress = "address"
	identityUUID    = "uuid"
)

// details are a Configuration's discoveryDetails: Akri's OnvifDiscoveryDetails, and
// identity.
type details struct {
	IPAddresses             *discovery.FilterList `json:"ipAddresses"`
	MACAddresses            *discovery.FilterList `json:"macAddresses"`
	Scopes                  *discovery.FilterList `json:"scopes"`
	UUIDs                   *discovery.FilterList `json:"uuids"`
	DiscoveryTimeoutSeconds *int                  `json:"discoveryTimeoutSeconds"`

	// Identity is what makes the device's ID: "address", as in Akri, is the URL of
	// the camera's service and its UUID; "uuid" is the UUID alone.
	Identity string `json:"identity"`
}

// Validate returns what Discover would refuse the request for, without any I/O: an error
// that wraps discovery.ErrInvalid, or nil.
func Validate(request discovery.Request) error {
	_, err := parseDetails(request)
	return err
}

func parseDetails(request discovery.Request) (details, error) {
	var d details
	if err := request.Decode(Name, &d); err != nil {
		return d, err
	}
	for _, f := range []struct {
		key  string
		list *discovery.FilterList
	}{
		{"ipAddresses", d.IPAddresses}, {"macAddresses", d.MACAddresses}, {"scopes", d.Scopes}, {"uuids", d.UUIDs},
	} {
		if err := f.list.Validate("discoveryDetails of " + Name + ": " + f.key); err != nil {
			return d, err
		}
	}
	if d.MACAddresses != nil {
		for i, item := range d.MACAddresses.Items {
			d.MACAddresses.Items[i] = macDigits(item)
		}
	}
	switch d.Identity {
	case "":
		d.Identity = identityAddress
	case identityAddress, identityUUID:
	default:
		return d, discovery.Invalidf("discoveryDetails of %s: identity is %.64q: want %s or %s", Name, d.Identity, identityAddress, identityUUID)
	}
	if t := d.DiscoveryTimeoutSeconds; t != nil && (*t < 0 || *t > int(maxTimeout/time.Second)) {
		return d, discovery.Invalidf("discoveryDetails of %s: discoveryTimeoutSeconds is %d: want 0 to %d", Name, *t, maxTimeout/time.Second)
	}
	return d, nil
}

// timeout is how long cameras have to answer before the first report.
func (d details) timeout() time.Duration {
	if d.DiscoveryTimeoutSeconds == nil {
		return time.Second
	}
	return time.Duration(*d.DiscoveryTimeoutSeconds) * time.Second
}

// needsNetwork is whether a camera whose addresses are not known is left out.
func (d details) needsNetwork() bool { return !d.IPAddresses.KeepsAll() || !d.MACAddresses.KeepsAll() }

// macDigits is a MAC address without what separates its digits: c0:06:c3:12:34:56,
// C0-06-C3-12-34-56, c006.c312.3456 and C006C3123456 are one address.
func macDigits(address string) string {
	return strings.NewReplacer(":", "", "-", "", ".", "", " ", "").Replace(address)
}
