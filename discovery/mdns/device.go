package mdns

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery"
)

// Properties of each device. A key of the TXT record follows TXTPrefix in upper case,
// with _ for all but letters and digits.
const (
	NameProperty      = "MDNS_NAME"      // the instance's name: "Kitchen Light"
	TypeProperty      = "MDNS_TYPE"      // "_http._tcp"
	HostProperty      = "MDNS_HOST"      // "kitchen-light.local"
	AddressProperty   = "MDNS_ADDRESS"   // the best of MDNS_ADDRESSES
	AddressesProperty = "MDNS_ADDRESSES" // with commas between them
	PortProperty      = "MDNS_PORT"
	TXTPrefix         = "MDNS_TXT_"
)

// maxTXTKeys is how many keys of a TXT record may be properties.
const maxTXTKeys = 64

// device returns the instance as a device, with these keys of its TXT record, in lower
// case; with all if keys is nil.
func (f *found) device(keys []string) discovery.Device {
	addresses := make([]string, len(f.addresses))
	for i, a := range f.addresses {
		addresses[i] = a.String()
	}
	properties := map[string]string{
		NameProperty:      f.label,
		TypeProperty:      f.service.text,
		HostProperty:      f.host,
		AddressProperty:   addresses[0],
		AddressesProperty: strings.Join(addresses, ","),
		PortProperty:      fmt.Sprint(f.port),
	}
	attributes := slices.DeleteFunc(f.attributes(), func(a attribute) bool {
		return keys != nil && !slices.Contains(keys, a.key)
	})
	for i, item := range attributes {
		key := TXTPrefix + discovery.EnvName(item.key)
		if i == maxTXTKeys {
			break
		}
		if _, taken := properties[key]; !taken && validValue(item.value) {
			properties[key] = item.value
		}
	}
	return discovery.Device{ID: f.label + "." + f.service.text, Properties: properties}
}

// attribute is a key of the TXT record, in lower case, and its value. One without "="
// has an empty value.
type attribute struct{ key, value string }

// attributes returns those of the TXT record, in its order. Of equal keys, which are
// compared without case, the first counts (RFC 6763 6.4).
func (f *found) attributes() (attributes []attribute) {
	seen := map[string]bool{}
	for item := range txtStrings(f.txt) {
		key, value, _ := strings.Cut(item, "=")
		key = foldASCII(key)
		if key == "" || seen[key] || !printable(key) {
			continue
		}
		seen[key] = true
		attributes = append(attributes, attribute{key, value})
	}
	return attributes
}

// printable is whether the key has only the characters of RFC 6763 6.4.
func printable(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
}

// validValue is whether an environment variable can hold a value: TXT records may have
// binary ones.
func validValue(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsRune(value, 0)
}
