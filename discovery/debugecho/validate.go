package debugecho

import "github.com/kubeslot/kubeslot/discovery"

// Validate returns what Discover would refuse the request for, without any I/O: an error
// that wraps discovery.ErrInvalid, or nil.
func Validate(request discovery.Request) error {
	_, err := parse(request, true)
	return err
}
