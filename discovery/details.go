package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ErrInvalid is wrapped by errors about discoveryDetails and discoveryProperties that
// no handler can work with: trying again is of no use until the Configuration changes.
var ErrInvalid = errors.New("invalid")

// ErrSecretsNeedTLS is wrapped by the error of a handler that must not get the values of Secrets.
var ErrSecretsNeedTLS = errors.New(
	"values of Secrets go only to handlers on a unix socket, or with https:// and spec.handlerCABundle")

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
		return Invalidf("discoveryDetails of %s: %d bytes, of %d that are allowed", handler, len(r.Details), maxDetailsBytes)
	}
	text := r.Details
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		why := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
		return Invalidf("discoveryDetails of %s: not YAML: %s", handler, why)
	}
	unknown, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return Invalidf("discoveryDetails of %s: %w", handler, inYAMLsWords(err))
	}
	for _, err := range unknown {
		r.Warnf("discoveryDetails of %s: %v: ignored%s", handler, err, meant(err, into))
	}
	return nil
}

// inYAMLsWords says what a value has to be without naming a type of Go.
func inYAMLsWords(err error) error {
	mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	is, literal, _ := strings.Cut(mistyped.Value, " ") // as in "number 3.5"
	switch is {
	case "array":
		is = "a list"
	case "object":
		is = "a mapping of keys to values"
	case "bool":
		is = "true or false"
	default: // string, number
		is = "a " + is
		if literal != "" {
			is = fmt.Sprintf("the number %.64s", literal)
		}
	}
	at := ""
	if mistyped.Field != "" {
		at = mistyped.Field + ": "
	}
	return fmt.Errorf("%swant %s, it is %s", at, kind(mistyped.Type), is)
}

// kind is what a value of a type is in YAML.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Slice, reflect.Array:
		switch t.Elem().Kind() {
		case reflect.String:
			return "a list of strings"
		case reflect.Struct, reflect.Map:
			return "a list of mappings of keys to values"
		}
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a mapping of keys to values"
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
