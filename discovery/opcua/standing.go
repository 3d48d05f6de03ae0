package opcua

import (
	"errors"
	"syscall"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// maxFailures and maxRefusals are how often in a row a URL fails, or refuses the
	// connection, until its devices are gone. A machine that refuses is there, and
	// nothing listens on the port.
	maxFailures = 3
	maxRefusals = 2
	// retry is how soon after its first failure a URL is asked again.
	retry = time.Second
)

// found is what one URL led to.
type found struct {
	devices []discovery.Device
	learned []target // servers that the one asked knows from its network
}

// standing is what to think of a URL after all that it answered. The zero value is that
// of one that has not been asked.
type standing struct {
	found
	settled  bool // whether found is known: the URL has answered, or is given up
	gaveUp   bool
	failures int // in a row
	refusals int // of them, the last ones
}

// observe takes the outcome of a round, and returns how long to wait for the next one,
// of rounds that are interval apart.
func (s *standing) observe(f found, err error, interval time.Duration) time.Duration {
	if err == nil {
		*s = standing{found: f, settled: true}
		return interval
	}
	s.failures++
	s.refusals++
	if !errors.Is(err, syscall.ECONNREFUSED) {
		s.refusals = 0
	}
	if s.failures >= maxFailures || s.refusals >= maxRefusals {
		s.found, s.settled, s.gaveUp = found{}, true, true
	}
	if s.failures == 1 {
		return min(retry, interval)
	}
	return interval
}
