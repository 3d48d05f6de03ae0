package signing

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Verifier verifies assignments with the public keys in a file. Safe for concurrent
// use; a nil one takes every assignment.
//
// A signature by a key that it does not know has it read the file again, at most once
// a second: a new key counts at once, without a restart. That a key was taken out of
// the file counts within a minute.
type Verifier struct {
	file  string
	clock clock.PassiveClock

	mu   sync.Mutex
	keys Keys
	read time.Time
	err  error // of the last reading; the keys before it stand
}

// NewVerifier reads the public keys in a PEM file.
func NewVerifier(file string) (*Verifier, error) {
	return newVerifier(file, clock.RealClock{})
}

func newVerifier(file string, clock clock.PassiveClock) (*Verifier, error) {
	v := &Verifier{file: file, clock: clock}
	v.readFile()
	return v, v.err
}

// readFile is to be called with mu held.
func (v *Verifier) readFile() {
	v.read = v.clock.Now()
	text, err := os.ReadFile(v.file)
	if err != nil {
		err = fmt.Errorf("read the keys of schedulers: %w", err)
	} else if keys, bad := ParseKeys(text); bad != nil {
		err = fmt.Errorf("%s: %w", v.file, bad)
	} else {
		v.keys = keys
	}
	if err != nil && v.err == nil && v.keys != nil {
		klog.Background().Error(err, "The keys of schedulers that were read before are trusted on: correct the file")
	}
	v.err = err
}

const (
	rereadInterval = time.Second
	revokedWithin  = time.Minute
)

// Verify says whether the assignment in the annotations was signed for the pod with
// the UID on the node.
func (v *Verifier) Verify(annotations map[string]string, podUID, node string) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.clock.Since(v.read) >= revokedWithin {
		v.readFile()
	}
	err := v.keys.verify(annotations, podUID, node)
	if !errors.Is(err, errUnknownKey) {
		return err
	}
	if v.clock.Since(v.read) >= rereadInterval {
		v.readFile()
		err = v.keys.verify(annotations, podUID, node)
	}
	return errors.Join(err, v.err)
}
