package slot

import (
	"encoding/hex"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// ShortHash and LongHash are how many hex digits an Instance's hash has: Akri's six,
// or twelve for Configurations of thousands of devices, among which six-digit hashes
// meet.
const (
	ShortHash = 6
	LongHash  = 12
)

// InstanceHash returns the hex BLAKE2b digest that names a device among its
// Configuration's: of its id, followed by the node's name when the device is
// not shared, since two nodes may each have a local device of the same id. digits
// is ShortHash or LongHash.
func InstanceHash(deviceID string, shared bool, node string, digits int) string {
	h, err := blake2b.New(digits/2, nil)
	if err != nil { // only for a size out of 1..64
		panic(err)
	}
	h.Write([]byte(deviceID))
	if !shared {
		h.Write([]byte(node))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// InstanceName returns `<configuration>-<hash>`.
func InstanceName(configuration, hash string) string {
	return configuration + "-" + hash
}

// SplitInstance splits an Instance's name into its Configuration's and the hash. The
// Configuration is "" when the name is not an Instance's.
func SplitInstance(instance string) (configuration, hash string) {
	cut := strings.LastIndexByte(instance, '-')
	if cut <= 0 {
		return "", ""
	}
	return instance[:cut], instance[cut+1:]
}

// IsHash reports whether the text can be an Instance's hash: six or twelve hex digits.
func IsHash(text string) bool {
	return (len(text) == ShortHash || len(text) == LongHash) && strings.Trim(text, "0123456789abcdef") == ""
}
