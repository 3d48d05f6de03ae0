package validation

import (
	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/debugecho"
	"github.com/kubeslot/kubeslot/discovery/mdns"
	"github.com/kubeslot/kubeslot/discovery/onvif"
	"github.com/kubeslot/kubeslot/discovery/opcua"
	"github.com/kubeslot/kubeslot/discovery/udev"
	"github.com/kubeslot/kubeslot/discovery/usb"
)

// known are the discovery handlers whose details can be checked: by their own parsers,
// so that the controller says what a node would say.
var known = map[string]func(discovery.Request) error{
	debugecho.Name: debugecho.Validate,
	mdns.Name:      mdns.Validate,
	onvif.Name:     onvif.Validate,
	opcua.Name:     opcua.Validate,
	udev.Name:      udev.Validate,
	usb.Name:       usb.Validate,
}
