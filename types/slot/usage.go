package slot

import (
	"fmt"
	"strings"
)

const clPrefix = "C:"

// Usage is a slot's entry in deviceUsage. The zero Usage is a free slot.
type Usage struct {
	// Node holds the slot.
	Node string
	// Holder is set when the slot is held through a configuration-level
	// request: the pod's UID, or a device plugin's virtual device id.
	Holder string
}

// Free reports whether nobody holds the slot.
func (u Usage) Free() bool { return u == Usage{} }

// ConfigurationLevel reports whether the slot is held through a
// configuration-level request.
func (u Usage) ConfigurationLevel() bool { return u.Holder != "" }

// String returns "", "<node>" or "C:<holder>:<node>".
func (u Usage) String() string {
	if u.Holder != "" {
		return clPrefix + u.Holder + ":" + u.Node
	}
	return u.Node
}

// ParseUsage reads a deviceUsage value. Node names and holders have no colon.
// A reader that gets an error must treat the slot as held.
func ParseUsage(s string) (Usage, error) {
	rest, cl := strings.CutPrefix(s, clPrefix)
	if !cl {
		if strings.Contains(s, ":") {
			return Usage{}, fmt.Errorf(`deviceUsage value %q: want "", "<node>" or "C:<holder>:<node>"`, s)
		}
		return Usage{Node: s}, nil
	}
	holder, node, ok := strings.Cut(rest, ":")
	if !ok || holder == "" || node == "" || strings.Contains(node, ":") {
		return Usage{}, fmt.Errorf(`deviceUsage value %q: want "C:<holder>:<node>"`, s)
	}
	return Usage{Node: node, Holder: holder}, nil
}

// annotationPrefix begins the key, before a slot's name, that marks a container as the user of the slot. Its
// value is the slot, or `C:<holder>:<slot>` when any device of the Configuration was requested. The
// runtime keeps it, so that a restarted kubecri knows who holds what. The name is Akri's.
//
// Annotation of containers in the runtime. Written by kubecri. Read by kubecri.
const annotationPrefix = "akri.agent.slot-"

// Annotation returns the key and value that mark a container as the user of a
// slot: value `<slot>`, or `C:<holder>:<slot>` for a configuration-level holder.
func Annotation(n Name, holder string) (key, value string) {
	value = n.String()
	if holder != "" {
		value = clPrefix + holder + ":" + value
	}
	return annotationPrefix + n.String(), value
}

// ParseAnnotation reads a container annotation. ok is false when the key is not
// that of a slot; err is set when it is but the value does not fit.
func ParseAnnotation(key, value string) (n Name, holder string, ok bool, err error) {
	want, ok := strings.CutPrefix(key, annotationPrefix)
	if !ok {
		return Name{}, "", false, nil
	}
	text := value
	if rest, cl := strings.CutPrefix(value, clPrefix); cl {
		holder, text, _ = strings.Cut(rest, ":")
		if holder == "" {
			return Name{}, "", true, fmt.Errorf("annotation %s=%q: no holder", key, value)
		}
	}
	if text != want {
		return Name{}, "", true, fmt.Errorf("annotation %s=%q: names another slot", key, value)
	}
	if n, err = Parse(text); err != nil {
		return Name{}, "", true, fmt.Errorf("annotation %s=%q: %w", key, value, err)
	}
	return n, holder, true, nil
}
