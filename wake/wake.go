// Package wake has a goroutine that waits woken by others.
package wake

// Signal is a channel with room for one value, which one goroutine receives from. Make it with New.
type Signal chan struct{}

// New returns a Signal.
func New() Signal { return make(Signal, 1) }

// Send wakes the goroutine that receives, or has it not wait the next time. It does not block: what is sent until then
// is received once.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
