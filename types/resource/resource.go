// Package resource reads and rewrites the names of hierarchical resources,
// "resource/group/<group>/<index>/…/<leaf>", and says which of them ran short.
//
// Names and signatures are those of KubeDevice-API's pkg/resource, so that
// plugins written for it keep their meaning; see kubedevice-api.
package resource

import (
	"strings"

	"github.com/kubeslot/kubeslot/types"
)

// IsGroupResourceName reports whether the group scheduler decides about name.
func IsGroupResourceName(name types.ResourceName) bool {
	return strings.HasPrefix(string(name), types.DeviceGroupPrefix)
}

// PrecheckedResource reports whether somebody else decides about name: it is
// the opposite of IsGroupResourceName, under the name that plugins know.
func PrecheckedResource(name types.ResourceName) bool {
	return !IsGroupResourceName(name)
}

// IsEnumResource reports whether the amount of name is a set of bits instead of
// a count: its last element begins with "enum", in any case.
func IsEnumResource(name types.ResourceName) bool {
	slash := strings.LastIndexByte(string(name), '/')
	if slash < 0 {
		return false
	}
	leaf := name[slash+1:]
	return len(leaf) >= 4 && strings.EqualFold(string(leaf[:4]), "enum")
}
