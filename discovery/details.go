package discovery

import (
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ErrInvalid is wrapped by errors about discoveryDetails and discoveryProperties that
// no handler can work with: trying again is of no use until the Configuration changes.
var ErrInvalid = errors.New("invalid")

// maxDetailsBytes is how long discoveryDetails may be. The API server takes objects of
// 1.5 MiB, and YAML of that size can take long to read.
const maxDetailsBytes = 256 << 10

// Decode reads the details, which are YAML, into a struct with json tags. handler is
// named in errors and warnings. Keys that the struct does not have are told to
// Request.Warn and ignored, as Akri ignores them: details that were written for another
// version work. A value of another type, a key that is there twice and text that is not
// YAML are errors, which wrap ErrInvalid. Empty details are those without any key.
func (r Request) Decode(handler string, into any) error {
	if len(r.Details) > maxDetailsBytes {
		return Invalidf("discoveryDetails of %s have %d bytes, of %d that are allowed", handler, len(r.Details), maxDetailsBytes)
	}
	text := r.Details
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	json, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return Invalidf("discoveryDetails of %s are not YAML: %w", handler, err)
	}
	unknown, err := kjson.UnmarshalStrict(json, into)
	if err != nil {
		return Invalidf("discoveryDetails of %s: %w", handler, err)
	}
	for _, err := range unknown {
		r.Warnf("discoveryDetails of %s: %v: ignored%s", handler, err, meant(err, into))
	}
	return nil
}

// Warnf tells Warn, if that is set.
func (r Request) Warnf(format string, args ...any) {
	if r.Warn != nil {
		r.Warn(fmt.Sprintf(format, args...))
	}
}

// Invalidf is fmt.Errorf for errors that wrap ErrInvalid. Their text is the format's
// alone.
func Invalidf(format string, args ...any) error {
	return &invalid{fmt.Errorf(format, args...)}
}

type invalid struct{ error }

func (e *invalid) Unwrap() []error { return []error{e.error, ErrInvalid} }
