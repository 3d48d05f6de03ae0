package slot

import (
	"encoding/hex"

	"golang.org/x/crypto/blake2b"
)

// hashBytes is the digest size that makes Akri's six-digit Instance names.
const hashBytes = 3

// InstanceHash returns the hex BLAKE2b digest that names a device among its
// Configuration's: of its id, followed by the node's name when the device is
// not shared, since two nodes may each have a local device of the same id.
func InstanceHash(deviceID string, shared bool, node string) string {
	h, err := blake2b.New(hashBytes, nil)
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
