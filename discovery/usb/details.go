package usb

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
)

// Identities of discoveryDetails.
const (
	bySerial = "serial"
	byPort   = "port"
)

// maxSelectors bounds the devices of one Configuration's details.
const maxSelectors = 256

// details are a Configuration's discoveryDetails.
type details struct {
	// Devices are those to find: any that one of them selects.
	Devices []selector `json:"devices"`
	// ContainerPath is where containers see the device's main node, such as /dev/zigbee.
	// Others of the same kind get a number behind it. Default: as on the node.
	ContainerPath string `json:"containerPath"`
	// Node is the kind of the main node, such as tty. A device that does not have one is
	// not found. Default: the first kind of kinds that the device has.
	Node string `json:"node"`
	// Identity says what makes a device the same one again: its serial number, with the
	// port for devices without, or always the port.
	Identity string `json:"identity"`
}

// selector selects devices for which all its fields, as far as there, are right.
type selector struct {
	Vendor  hex4   `json:"vendor"`
	Product hex4   `json:"product"`
	Serial  string `json:"serial"`
	// Class is that of the device or of one of its interfaces, such as "03" for HID.
	Class hex2 `json:"class"`
	// Port is USB_PORT or USB_PORT_PATH of the device.
	Port string `json:"port"`
	// ContainerPath is details.ContainerPath for the devices of this selector.
	ContainerPath string `json:"containerPath"`
}

// hex4 and hex2 are hexadecimal numbers of so many digits, in lower case, or "". They
// must be strings: YAML reads 0403 as 259, and 10e4 as 100000.
type (
	hex4 string
	hex2 string
)

func (h *hex4) UnmarshalJSON(data []byte) error {
	text, err := parseHex(data, 4, "0403")
	*h = hex4(text)
	return err
}

func (h *hex2) UnmarshalJSON(data []byte) error {
	text, err := parseHex(data, 2, "07")
	*h = hex2(text)
	return err
}

func parseHex(data []byte, digits int, example string) (string, error) {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return "", fmt.Errorf("%.64s is not a string: want hexadecimal digits in quotes, such as %q", data, example)
	}
	if text == "" {
		return "", nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 4*digits)
	if err != nil {
		return "", fmt.Errorf("%.64q is not a number of %d hexadecimal digits such as %q", text, digits, example)
	}
	return fmt.Sprintf("%0*x", digits, n), nil
}

var kindName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

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
	if d.Devices == nil || len(d.Devices) > maxSelectors {
		return nil, discovery.Invalidf("discoveryDetails of %s: devices has %d items: want 1 to %d, each with vendor and product", Name, len(d.Devices), maxSelectors)
	}
	for i, s := range d.Devices {
		switch {
		case s.Product != "" && s.Vendor == "":
			return nil, discovery.Invalidf("discoveryDetails of %s: devices[%d] has a product but no vendor, which alone gives it a meaning", Name, i)
		case s.Vendor == "" && s.Class == "" && s.Port == "":
			return nil, discovery.Invalidf("discoveryDetails of %s: devices[%d] selects every device: want a vendor, a class or a port", Name, i)
		}
		if err := checkContainerPath(s.ContainerPath); err != nil {
			return nil, discovery.Invalidf("discoveryDetails of %s: devices[%d]: %w", Name, i, err)
		}
	}
	if err := checkContainerPath(d.ContainerPath); err != nil {
		return nil, discovery.Invalidf("discoveryDetails of %s: %w", Name, err)
	}
	if d.Node != "" && !kindName.MatchString(d.Node) {
		return nil, discovery.Invalidf("discoveryDetails of %s: node is %.64q: want a kind of device node, such as tty, video or hidraw", Name, d.Node)
	}
	switch d.Identity {
	case "":
		d.Identity = bySerial
	case bySerial, byPort:
	default:
		return nil, discovery.Invalidf("discoveryDetails of %s: identity is %.64q: want %s or %s", Name, d.Identity, bySerial, byPort)
	}
	return d, nil
}

func checkContainerPath(p string) error {
	if p != "" && (path.Clean(p) != p || !strings.HasPrefix(p, "/dev/") || len(p) > 255) {
		return fmt.Errorf("containerPath is %.64q: want a path below /dev, such as /dev/zigbee", p)
	}
	return nil
}

// selects returns the first selector that selects a device, or nil.
func (d *details) selects(device *usbDevice) *selector {
	for i := range d.Devices {
		s := &d.Devices[i]
		if (s.Vendor == "" || string(s.Vendor) == device.vendor) &&
			(s.Product == "" || string(s.Product) == device.product) &&
			(s.Serial == "" || s.Serial == device.serial) &&
			(s.Port == "" || s.Port == device.port || s.Port == device.portPath) &&
			(s.Class == "" || device.classes[string(s.Class)]) {
			return s
		}
	}
	return nil
}
