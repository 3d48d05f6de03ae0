package onvif

import (
	"slices"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

// Properties of each device: Akri's. The last two are there when the camera told them.
const (
	ServiceURLProperty = "ONVIF_DEVICE_SERVICE_URL"
	UUIDProperty       = "ONVIF_DEVICE_UUID"
	IPAddressProperty  = "ONVIF_DEVICE_IP_ADDRESS"
	MACAddressProperty = "ONVIF_DEVICE_MAC_ADDRESS"
)

// ipv4Delay is how long a camera that is heard over IPv6 may take to be heard over IPv4
// as well: WS-Discovery has up to 500 ms between answers.
const ipv4Delay = 700 * time.Millisecond

// candidate is a camera whose services become devices, unless their addresses are
// filtered out. Without services, it is not known yet which ones.
type candidate struct {
	camera
	devices []verified
}

// candidates applies the filters for which a camera need not be asked, and decides
// which of a camera's services become devices. next is when to call it again at the
// latest; zero for never.
func (d details) candidates(cameras []camera, now time.Time) (all []candidate, next time.Time) {
	for _, c := range cameras {
		if !d.keeps(c) {
			continue
		}
		services := c.services[:1] // the best one
		if services[0].akri() {
			if d.Identity == identityAddress {
				services = slices.DeleteFunc(slices.Clone(c.services), func(v verified) bool { return !v.akri() })
			}
		} else {
			// Its IPv4 address may follow. It is what the device is to be called by.
			if due := c.since.Add(ipv4Delay); now.Before(due) {
				services, next = nil, earlier(next, due)
			} else if c.asking {
				services = nil
			}
		}
		all = append(all, candidate{c, services})
	}
	return all, next
}

// keeps applies the filters of what a camera announces.
func (d details) keeps(c camera) bool {
	return d.UUIDs.KeepsFold(c.uuid) && d.Scopes.Keeps(c.scopes...)
}

// earlier returns the earlier one of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// device returns the device of a service, or false when its addresses are filtered out.
// What is not known of them is empty.
func (d details) device(c camera, service verified, n network) (discovery.Device, bool) {
	if !keepsAddress(d.IPAddresses, n.ip) || !keepsAddress(d.MACAddresses, macDigits(n.mac)) {
		return discovery.Device{}, false
	}
	device := discovery.Device{
		ID:         c.uuid,
		Properties: map[string]string{ServiceURLProperty: service.xaddr, UUIDProperty: c.uuid},
	}
	if d.Identity == identityAddress {
		device.ID = service.xaddr + "-" + c.uuid
	}
	if n.ip != "" {
		device.Properties[IPAddressProperty] = n.ip
	}
	if n.mac != "" {
		device.Properties[MACAddressProperty] = n.mac
	}
	return device, true
}

// keepsAddress leaves out what is not known, unless it does not matter.
func keepsAddress(filter *discovery.FilterList, address string) bool {
	return filter.KeepsAll() || address != "" && filter.KeepsFold(address)
}
