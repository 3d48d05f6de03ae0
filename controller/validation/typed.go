package validation

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// maxTypedErrors bounds what is said of one object: a spec of another kind has nothing
// but unknown fields.
const maxTypedErrors = 20

// decode is decode, which adds to the findings. It reports whether into is filled.
func (f *Findings) decode(path *field.Path, raw []byte, into any) bool {
	errs := decode(path, raw, into)
	if f.Errors = append(f.Errors, errs...); len(errs) >= maxTypedErrors {
		f.more = append(f.more, path.String())
	}
	return len(errs) == 0
}

// decode reads raw JSON into a Go type of Kubernetes' API, and returns an error for each
// field that the type does not have and each value of another type, with the field's
// path. into is filled only when there are none. It refuses what
// kjson.UnmarshalStrict refuses, which stops at the first such value and does not say in
// which item of a list it is.
func decode(path *field.Path, raw []byte, into any) field.ErrorList {
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &value); err != nil {
		return field.ErrorList{field.TypeInvalid(path, field.OmitValueType{}, "not JSON: "+err.Error())}
	}
	w := &walker{}
	w.walk(path, reflect.TypeOf(into).Elem(), value)
	if len(w.errs) > 0 {
		return w.errs
	}
	// What is left to find: nothing, unless the two differ.
	unknown, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		unknown = append(unknown, err)
	}
	for _, err := range unknown {
		w.errs = append(w.errs, field.Invalid(path, field.OmitValueType{}, err.Error()))
	}
	return w.errs
}

// walker compares a JSON value with a Go type.
type walker struct{ errs field.ErrorList }

func (w *walker) add(err *field.Error) {
	if len(w.errs) < maxTypedErrors {
		w.errs = append(w.errs, err)
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// walk compares a value with the type that a field has. null is a value of all types:
// the field keeps its zero value. The specs have neither bytes nor fractions.
func (w *walker) walk(path *field.Path, t reflect.Type, value any) {
	if value == nil || len(w.errs) == maxTypedErrors {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		w.custom(path, t, value)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if object, ok := value.(map[string]any); ok {
			w.object(path, t, object)
			return
		}
		w.mistyped(path, value, "an object")
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			w.mistyped(path, value, "an object")
			return
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			w.walk(path.Key(key), t.Elem(), object[key])
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			w.mistyped(path, value, "a list")
			return
		}
		for i, item := range list {
			w.walk(path.Index(i), t.Elem(), item)
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			w.mistyped(path, value, "a string: put it in quotes")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			w.mistyped(path, value, "true or false, without quotes")
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, ok := value.(int64)
		if !ok {
			w.mistyped(path, value, "an integer, without quotes")
		} else if t.Kind() == reflect.Int32 && (n < math.MinInt32 || n > math.MaxInt32) {
			w.mistyped(path, value, "an integer of 32 bits")
		}
	}
}

func (w *walker) mistyped(path *field.Path, value any, want string) {
	w.add(field.TypeInvalid(path, shown(value), "want "+want))
}

// custom asks the type itself, such as a quantity, a port or a time.
func (w *walker) custom(path *field.Path, t reflect.Type, value any) {
	raw, err := json.Marshal(value)
	if err == nil {
		err = reflect.New(t).Interface().(json.Unmarshaler).UnmarshalJSON(raw)
	}
	if err != nil {
		w.add(field.Invalid(path, shown(value), err.Error()))
	}
}

func (w *walker) object(path *field.Path, t reflect.Type, object map[string]any) {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		of, known := fields[key]
		if !known {
			w.add(field.Forbidden(path.Child(key), "unknown field"+spelling.DidYouMean(key, slices.Sorted(maps.Keys(fields)))))
			continue
		}
		w.walk(path.Child(key), of, object[key])
	}
}

// shown is a value as errors quote it: no objects, and not all of a long text, which
// may also hold what is no concern of a log's readers.
func shown(value any) any {
	switch v := value.(type) {
	case string:
		return quoted(v)
	case bool, int64, float64:
		return v
	}
	return field.OmitValueType{}
}

// quoted is the beginning of a text.
func quoted(text string) string { return naming.CutText(text, 65) }

var typeFields sync.Map // of reflect.Type: map[string]reflect.Type

// fieldsOf returns the types of a struct's fields by their names in JSON, those of
// inlined structs included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := typeFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			inlined := f.Type
			if inlined.Kind() == reflect.Pointer {
				inlined = inlined.Elem()
			}
			maps.Copy(fields, fieldsOf(inlined))
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	typeFields.Store(t, fields)
	return fields
}
