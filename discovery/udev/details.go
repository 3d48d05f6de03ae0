package udev

import (
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
)

// Akri's discoveryProperties for KubeVirt.
const (
	resourceNameProperty    = "devicePluginResourceName"
	vfioPassthroughProperty = "vfioPassthrough"
)

const (
	// defaultPermissions of device nodes in containers.
	defaultPermissions = "rwm"

	// maxRules bounds what one Configuration makes the node look for.
	maxRules = 1000
)

// allowedPermissions are Akri's.
var allowedPermissions = []string{"r", "w", "m", "rw", "rm", "rwm", "wm"}

// details are a Configuration's discoveryDetails.
type details struct {
	// UdevRules are rules of udev(7). A device is found if any one of them selects it.
	UdevRules []string `json:"udevRules"`
	// GroupRecursive makes one device of a found device and all found devices below it.
	GroupRecursive bool `json:"groupRecursive"`
	// Permissions are those of device nodes in containers: of r, w and m.
	Permissions *string `json:"permissions"`
}

// search is what one Configuration looks for.
type search struct {
	rules       []*rule
	group       bool
	permissions string
	// resource is the name of KubeVirt's resource in environment variables, or "".
	resource string
	// vfio adds the device nodes by which a virtual machine takes a PCI device.
	vfio bool
}

// Validate returns what Discover would refuse the request for, without any I/O: an error
// that wraps discovery.ErrInvalid, or nil.
func Validate(request discovery.Request) error {
	_, err := parseRequest(request)
	return err
}

// parseRequest reads details and properties. Errors wrap discovery.ErrInvalid.
func parseRequest(request discovery.Request) (*search, error) {
	var d details
	if err := request.Decode(Name, &d); err != nil {
		return nil, err
	}
	switch {
	case d.UdevRules == nil:
		return nil, discovery.Invalidf("discoveryDetails of %s: udevRules, the list of rules that select devices, is missing", Name)
	case len(d.UdevRules) > maxRules:
		return nil, discovery.Invalidf("discoveryDetails of %s: udevRules has %d rules, of %d that are allowed", Name, len(d.UdevRules), maxRules)
	}
	s := &search{group: d.GroupRecursive, permissions: defaultPermissions}
	if d.Permissions != nil {
		if !slices.Contains(allowedPermissions, *d.Permissions) {
			return nil, discovery.Invalidf("discoveryDetails of %s: permissions is %.32q: want one of %s",
				Name, *d.Permissions, strings.Join(allowedPermissions, ", "))
		}
		s.permissions = *d.Permissions
	}
	for i, text := range d.UdevRules {
		r, err := parseRule(text)
		if err != nil {
			return nil, discovery.Invalidf("discoveryDetails of %s: udevRules[%d], %w", Name, i, err)
		}
		if len(r.parents) > 0 && !slices.ContainsFunc(r.parents, func(c condition) bool { return !c.negate }) {
			request.Warnf("discoveryDetails of %s: udevRules[%d] has conditions on parents with != only. They hold as soon as "+
				"the device or any one parent differs, which is nearly always; Akri's handler required it of all parents", Name, i)
		}
		for _, warning := range r.warnings {
			request.Warnf("discoveryDetails of %s: udevRules[%d]: %s", Name, i, warning)
		}
		s.rules = append(s.rules, r)
	}
	if name := request.Properties[resourceNameProperty]; len(name) > 0 {
		s.resource = resourceVariable(string(name))
	}
	s.vfio = string(request.Properties[vfioPassthroughProperty]) == "true"
	return s, nil
}

// resourceVariable is a resource's name as KubeVirt writes it in environment variables:
// upper case, with "." and "/" turned to "_". "-" stays.
func resourceVariable(resource string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(resource))
}
