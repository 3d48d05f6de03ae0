package assignment

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// unreadable says in the annotation's words why json.Unmarshal does not read the text, and at
// which byte of it. json leaves out of the path what an author named: containers and resources.
func unreadable(text string, err error) error {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("it is empty")
	case errors.As(err, &syntax) && err.Error() == "unexpected end of JSON input":
		return fmt.Errorf("it is cut off after byte %d", syntax.Offset)
	case errors.As(err, &syntax):
		return fmt.Errorf("%w at byte %d", err, syntax.Offset)
	case errors.As(err, &mistyped):
		path := ""
		if mistyped.Field != "" {
			path = mistyped.Field + ": "
		}
		return fmt.Errorf("%swant %s, it is %s at byte %d", path, wanted(mistyped.Type), found(mistyped.Value), mistyped.Offset)
	}
	return err
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int64, reflect.Int32:
		return "a whole number"
	case reflect.String:
		return "a string"
	}
	return "an object"
}

// found names a value as json does: its kind, and of a number that does not fit the number too.
func found(value string) string {
	switch {
	case value == "array" || value == "object":
		return "an " + value
	case strings.HasPrefix(value, "number "):
		return "the " + shorten(value)
	}
	return "a " + value
}
