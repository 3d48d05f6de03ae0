package opcua

import (
	"slices"

	"github.com/kubeslot/kubeslot/discovery"
)

// maxURLs is how many discoveryUrls a Configuration may have.
const maxURLs = 1000

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
