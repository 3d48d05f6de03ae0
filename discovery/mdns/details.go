package mdns

import (
	"fmt"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
)

// maxServices bounds what one Configuration asks the network for.
const maxServices = 64

// details are a Configuration's discoveryDetails.
type details struct {
	// Services are DNS-SD types such as _http._tcp, or subtypes such as
	// _printer._sub._http._tcp, with or without .local.
	Services []string `json:"services"`
	// Name keeps instances by their names, without regard to case.
	Name *discovery.FilterList `json:"name"`
	// TXT keeps instances by values in the TXT record; the keys' case is ignored. A key
	// that an instance does not have is no value: Include leaves the instance out.
	TXT map[string]*discovery.FilterList `json:"txt"`
	// TXTKeys are the keys of the TXT record that become properties; their case is ignored.
	// All do when nil.
	TXTKeys []string `json:"txtKeys"`

	services []service
}

// Validate returns what Discover would refuse the request for, without any I/O: an error
// that wraps discovery.ErrInvalid, or nil.
func Validate(request discovery.Request) error {
	_, err := parse(request)
	return err
}

// parse returns the details of a request, or an error that wraps discovery.ErrInvalid.
func parse(request discovery.Request) (*details, error) {
	d := &details{}
	if err := request.Decode(Name, d); err != nil {
		return nil, err
	}
	if len(d.Services) == 0 || len(d.Services) > maxServices {
		return nil, discovery.Invalidf(
			"discoveryDetails of %s: services has %d items: want 1 to %d types such as _http._tcp", Name, len(d.Services), maxServices)
	}
	seen := map[name]bool{}
	for i, text := range d.Services {
		s, err := parseService(text)
		if err != nil {
			return nil, discovery.Invalidf("discoveryDetails of %s: services[%d]: %w", Name, i, err)
		}
		if !seen[s.query] {
			seen[s.query] = true
			d.services = append(d.services, s)
		}
	}
	if err := d.Name.Validate(Name + ": name"); err != nil {
		return nil, err
	}
	folded := map[string]*discovery.FilterList{}
	for key, filter := range d.TXT {
		if err := filter.Validate(fmt.Sprintf("%s: txt[%.64q]", Name, key)); err != nil {
			return nil, err
		}
		if !validKey(key) {
			return nil, discovery.Invalidf("%s: txt[%.64q] cannot be a key: want printable ASCII without =", Name, key)
		}
		if _, twice := folded[foldASCII(key)]; twice {
			return nil, discovery.Invalidf("%s: txt[%.64q] is there twice: case does not count", Name, key)
		}
		folded[foldASCII(key)] = filter
	}
	d.TXT = folded
	if len(d.TXTKeys) > maxTXTKeys {
		return nil, discovery.Invalidf("%s: txtKeys has %d items: want at most %d", Name, len(d.TXTKeys), maxTXTKeys)
	}
	for i, key := range d.TXTKeys {
		if !validKey(key) {
			return nil, discovery.Invalidf("%s: txtKeys[%d] is %.64q: want printable ASCII without =", Name, i, key)
		}
		d.TXTKeys[i] = foldASCII(key)
	}
	return d, nil
}

func validKey(key string) bool { return key != "" && !strings.Contains(key, "=") && printable(key) }

// parseService reads "_http._tcp" and "_printer._sub._http._tcp".
func parseService(text string) (service, error) {
	bad := func(problem string) (service, error) {
		return service{}, fmt.Errorf("%.64q %s: want a DNS-SD type such as _http._tcp", text, problem)
	}
	short := strings.TrimSuffix(foldASCII(text), ".")
	short = strings.TrimSuffix(short, ".local")
	labels := strings.Split(short, ".")
	base := labels
	if len(labels) == 4 && labels[1] == "_sub" {
		base = labels[2:]
	}
	switch {
	case len(base) != 2:
		return bad("does not have two parts")
	case base[1] != "_tcp" && base[1] != "_udp":
		return bad("does not end in _tcp or _udp")
	case !strings.HasPrefix(base[0], "_") || len(base[0]) < 2:
		return bad("does not begin with _")
	}
	if strings.ContainsFunc(base[0][1:], func(r rune) bool {
		return r != '-' && r != '_' && discovery.EnvName(string(r)) == "_"
	}) {
		return bad("has other characters than letters, digits and -")
	}
	query, err := newName(append(labels, "local")...)
	if err != nil {
		return bad(fmt.Sprintf("is no domain name (%v)", err))
	}
	baseName, err := newName(append(base, "local")...)
	if err != nil {
		return bad(fmt.Sprintf("is no domain name (%v)", err))
	}
	return service{query: query, base: baseName, text: strings.Join(base, ".")}, nil
}

// keeps is whether the filters let an instance through.
func (d *details) keeps(f *found) bool {
	if !d.Name.KeepsFold(f.label) {
		return false
	}
	if len(d.TXT) == 0 {
		return true
	}
	values := map[string][]string{}
	for _, a := range f.attributes() {
		values[a.key] = []string{a.value}
	}
	for key, filter := range d.TXT {
		if !filter.Keeps(values[key]...) {
			return false
		}
	}
	return true
}

// devices returns the instances that the filters let through, sorted by ID. Of one that
// is changing the device told before stands.
func (d *details) devices(all []found, before map[string]discovery.Device) map[string]discovery.Device {
	devices := map[string]discovery.Device{}
	for i := range all {
		f := &all[i]
		if !d.keeps(f) {
			continue
		}
		device := f.device(d.TXTKeys)
		if old, ok := before[device.ID]; ok && f.changing {
			device = old
		}
		devices[device.ID] = device
	}
	return devices
}
