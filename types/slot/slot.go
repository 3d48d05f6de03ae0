// Package slot names an Instance's usage slots and says who holds them: the
// slot's name, its entry in Instance.spec.deviceUsage, which mirrors the
// SlotClaim of that name, and the annotation of the container that uses it.
//
// The forms are Akri's, see "Maintaining Device Usage" in its
// configuration-level-resources proposal.
package slot

import (
	"fmt"
	"strconv"
	"strings"
)

// Name identifies one slot: `<instance>-<index>`, 0 ≤ index < capacity.
type Name struct {
	Instance string
	Index    int
}

// String returns the name as it stands in deviceUsage.
func (n Name) String() string {
	return n.Instance + "-" + strconv.Itoa(n.Index)
}

// MarshalText implements encoding.TextMarshaler: in JSON it is its String.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, by Parse.
func (n *Name) UnmarshalText(text []byte) (err error) {
	*n, err = Parse(string(text))
	return err
}

// Parse reads `<instance>-<index>`. The index is in plain decimal without
// leading zeros, so that each slot has exactly one name.
func Parse(s string) (Name, error) {
	cut := strings.LastIndexByte(s, '-')
	if cut <= 0 {
		return Name{}, fmt.Errorf("slot %q: want <instance>-<index>", s)
	}
	index, err := parseIndex(s[cut+1:])
	if err != nil {
		return Name{}, fmt.Errorf("slot %q: %w", s, err)
	}
	return Name{Instance: s[:cut], Index: index}, nil
}

// maxIndex is that of the last slot of an Instance with the largest capacity that
// the API allows.
const maxIndex = 9_999

func parseIndex(s string) (int, error) {
	if s == "" || len(s) > 4 || (len(s) > 1 && s[0] == '0') {
		return 0, fmt.Errorf("index %q is not a number from 0 to %d", s, maxIndex)
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("index %q is not a number from 0 to %d", s, maxIndex)
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}
