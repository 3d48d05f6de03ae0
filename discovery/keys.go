package discovery

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/kubeslot/kubeslot/types/spelling"
)

// meant proposes the key that an unknown one was probably meant to be, of those that the
// details have in its place; empty when none is like it.
func meant(err error, into any) string {
	unknown, ok := err.(kjson.FieldError)
	if !ok {
		return ""
	}
	path := strings.Split(unknown.FieldPath(), ".")
	t := reflect.TypeOf(into)
	for _, step := range path[:len(path)-1] {
		step, _, _ = strings.Cut(step, "[")
		t = keysOf(t)[step]
	}
	return spelling.DidYouMean(path[len(path)-1], slices.Sorted(maps.Keys(keysOf(t))))
}

// keysOf are the JSON keys of a struct, or of what a pointer, list or map has, with their
// types; none for anything else.
func keysOf(t reflect.Type) map[string]reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	keys := map[string]reflect.Type{}
	if t == nil || t.Kind() != reflect.Struct {
		return keys
	}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			keys[name] = t.Field(i).Type
		}
	}
	return keys
}
