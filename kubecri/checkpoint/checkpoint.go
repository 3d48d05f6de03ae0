// Package checkpoint keeps in a file of the node what kubecri has to know to create a
// container again while the API server is away: the node's SlotClaims and the devices
// behind them. Like the kubelet's checkpoints, the file has a checksum and is replaced
// in one step: a reader finds the former content or the new one, or an error.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/replacefile"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// version of the file's format. A file of another version is an error: it is written
// anew as soon as the API server has been read.
const version = 1

// maxBytes bounds what is read. 10,000 claims and devices are about 10 MiB.
const maxBytes = 64 << 20

// ErrCorrupt is in the error of a file that is not as it was written.
var ErrCorrupt = errors.New("corrupt checkpoint")

// Checkpoint is what the file holds.
type Checkpoint struct {
	Claims []Claim `json:"claims"`
	// MarkedSince is when a kubecri of this node first marked the containers that device
	// plugins give something (package repair).
	MarkedSince time.Time `json:"markedSince"`
	// Devices are those behind the claims, by Instance.
	Devices map[string]Device `json:"devices"`
}

// Claim is a SlotClaim of this node.
type Claim struct {
	Slot string                 `json:"slot"`
	Spec v1alpha1.SlotClaimSpec `json:"spec"`
}

// Device is a device as containers were given it.
type Device struct {
	// Handler is the name of the discovery handler that found it.
	Handler string `json:"handler"`
	// Device has the properties of its Configuration, too. They may be secret.
	Device discovery.Device `json:"device"`
	// Nodes say which device nodes those of the device are, by HostPath.
	Nodes map[string]string `json:"nodes,omitempty"`
}

// file is the file's JSON.
type file struct {
	Version int `json:"version"`
	// Checksum is the SHA-256 of Data's bytes, in hexadecimal.
	Checksum string          `json:"checksum"`
	Data     json.RawMessage `json:"data"`
}

// Encode returns the file's content. Equal checkpoints have equal content.
func Encode(c Checkpoint) ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the checkpoint: %w", err)
	}
	return json.Marshal(file{Version: version, Checksum: checksum(data), Data: data})
}

// Decode reads what Encode returned. Any other content is an error.
func Decode(content []byte) (Checkpoint, error) {
	var f file
	if err := json.Unmarshal(content, &f); err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if f.Version != version {
		return Checkpoint{}, fmt.Errorf("%w: version %d, want %d", ErrCorrupt, f.Version, version)
	}
	if checksum(f.Data) != f.Checksum {
		return Checkpoint{}, fmt.Errorf("%w: its checksum does not match", ErrCorrupt)
	}
	var c Checkpoint
	if err := json.Unmarshal(f.Data, &c); err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for _, claim := range c.Claims {
		if _, err := slot.Parse(claim.Slot); err != nil {
			return Checkpoint{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return c, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Load reads the file at path. Its error wraps fs.ErrNotExist where there is none, and
// ErrCorrupt where the content is not to be used.
func Load(path string) (Checkpoint, error) {
	f, err := os.Open(path)
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return Checkpoint{}, err
	}
	if len(content) > maxBytes {
		return Checkpoint{}, fmt.Errorf("%s: %w: more than %d bytes", path, ErrCorrupt, maxBytes)
	}
	c, err := Decode(content)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Writer replaces the file at a path. For one goroutine.
type Writer struct {
	path string
	last []byte // what was written last; nil for nothing, and after an error
}

// NewWriter returns a Writer of the file at path, of which the directory exists.
func NewWriter(path string) *Writer { return &Writer{path: path} }

// Write makes the file say c, readable for root alone. It reports whether that was news.
// When it returns, the file is on the disk.
func (w *Writer) Write(c Checkpoint) (wrote bool, err error) {
	content, err := Encode(c)
	if err != nil || w.last != nil && bytes.Equal(content, w.last) {
		return false, err
	}
	w.last = nil // after an error also the former content is news: whether it can be written is asked
	if err := replacefile.Write(w.path, content, 0o600); err != nil {
		return false, err
	}
	w.last = content
	return true, nil
}
