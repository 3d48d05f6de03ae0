package claims

import (
	"fmt"
	"strings"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Refusal is an error that says that a container must not get what its pod's
// annotation says: not a failure of ours, and not to be retried by us.
type Refusal struct{ text string }

// Error implements error.
func (r *Refusal) Error() string { return r.text }

// Refusef returns a *Refusal with the text.
func Refusef(format string, args ...any) error {
	return &Refusal{text: fmt.Sprintf(format, args...)}
}

// refuseHeld says that another has the slot's claim.
func refuseHeld(name slot.Name, by *v1alpha1.SlotClaim) error {
	return Refusef("slot %s is claimed by %s; it is free when that container is gone, and creation is retried", name,
		by.HeldBy())
}

// maxNamed is how many names a message has that becomes an Event.
const maxNamed = 8

// Some lists the names for such a message, the first of many.
func Some(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
