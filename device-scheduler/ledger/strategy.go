package ledger

import (
	"cmp"

	"github.com/kubeslot/kubeslot/device-scheduler/slotsearch"
)

// Strategy says which Instance a slot is taken from first.
type Strategy string

const (
	// Spread takes from the Instance with the most free slots.
	Spread Strategy = "Spread"
	// Pack takes from the Instance with the fewest.
	Pack Strategy = "Pack"
)

// compare orders Instances by their free slots, then by name. It is below 0 if slots are
// taken from a first.
func (s Strategy) compare(freeOfA int, a string, freeOfB int, b string) int {
	byFree := cmp.Compare(freeOfB, freeOfA)
	if s == Pack {
		byFree = -byFree
	}
	return cmp.Or(byFree, cmp.Compare(a, b))
}

func (s Strategy) order(a, b *slotsearch.Instance) int {
	return s.compare(a.Left(), a.Name, b.Left(), b.Name)
}
