package opcua

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

// A letter is a round: 'a' and 'b' answers with that device, '-' one without a device,
// 'r' a refused connection, 't' a timeout.
func TestStanding(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for rounds, want := range map[string]struct {
		seen    string // the device that is reported after it
		settled bool
		again   time.Duration
	}{
		"":     {},
		"a":    {"a", true, 10 * time.Second},
		"-":    {"", true, 10 * time.Second},
		"ab":   {"b", true, 10 * time.Second},
		"a-":   {"", true, 10 * time.Second},
		"ar":   {"a", true, time.Second},
		"arr":  {"", true, 10 * time.Second},
		"at":   {"a", true, time.Second},
		"att":  {"a", true, 10 * time.Second},
		"attt": {"", true, 10 * time.Second},
		"atr":  {"a", true, 10 * time.Second},
		"atrr": {"", true, 10 * time.Second},
		"artt": {"", true, 10 * time.Second},
		"arar": {"a", true, time.Second},
		"atta": {"a", true, 10 * time.Second},
		"arrb": {"b", true, 10 * time.Second},
		"t":    {"", false, time.Second},
		"tt":   {"", false, 10 * time.Second},
		"ttt":  {"", true, 10 * time.Second},
		"rr":   {"", true, 10 * time.Second},
	} {
		t.Run(rounds, func(t *testing.T) {
			var s standing
			var again time.Duration
			for _, round := range rounds {
				switch round {
				case 'r':
					again = s.observe(found{}, fmt.Errorf("wrapped: %w", refused), 10*time.Second)
				case 't':
					again = s.observe(found{}, errors.New("timeout"), 10*time.Second)
				case '-':
					again = s.observe(found{}, nil, 10*time.Second)
				default:
					again = s.observe(found{devices: []discovery.Device{{ID: string(round)}}}, nil, 10*time.Second)
				}
			}
			seen := ""
			for _, d := range s.devices {
				seen += d.ID
			}
			if seen != want.seen || s.settled != want.settled || again != want.again {
				t.Errorf("device %q, settled %v, again after %v; want %+v", seen, s.settled, again, want)
			}
		})
	}
}
