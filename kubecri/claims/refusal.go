package claims

import "fmt"

// Refusal is an error that says that a container must not get what its pod's
// annotation says: not a failure of ours, and not to be retried by us.
type Refusal struct{ text string }

// Error implements error.
func (r *Refusal) Error() string { return r.text }

// Refusef returns a *Refusal with the text.
func Refusef(format string, args ...any) error {
	return &Refusal{text: fmt.Sprintf(format, args...)}
}
