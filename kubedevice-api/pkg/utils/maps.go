package utils

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// SortedStringKeys returns the keys of a map from strings, sorted. It panics if
// x is no map.
func SortedStringKeys(x interface{}) []string {
	m := mapValue(x)
	keys := make([]string, 0, m.Len())
	for _, key := range m.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}

// AssignMap sets x[keys[0]][keys[1]]… to val and makes the maps on the way. It
// panics if x is no such map, or keys no slice or array.
func AssignMap(x interface{}, keys interface{}, val interface{}) {
	m, path := mapValue(x), pathOf(keys)
	for _, key := range path[:len(path)-1] {
		inner := m.MapIndex(key)
		if !inner.IsValid() {
			inner = reflect.MakeMap(m.Type().Elem())
			m.SetMapIndex(key, inner)
		}
		m = mapValue(inner.Interface())
	}
	m.SetMapIndex(path[len(path)-1], reflect.ValueOf(val))
}

// GetMap returns x[keys[0]][keys[1]]…, or the zero value if x has no such entry.
// It panics if x is no such map, or keys no slice or array.
func GetMap(x interface{}, keys interface{}) interface{} {
	m, path := mapValue(x), pathOf(keys)
	for _, key := range path[:len(path)-1] {
		inner := m.MapIndex(key)
		if !inner.IsValid() {
			inner = reflect.Zero(m.Type().Elem())
		}
		m = mapValue(inner.Interface())
	}
	val := m.MapIndex(path[len(path)-1])
	if !val.IsValid() {
		val = reflect.Zero(m.Type().Elem())
	}
	return val.Interface()
}

// CompareMapStringString prints how two maps differ.
func CompareMapStringString(x map[string]string, y map[string]string) {
	if len(x) != len(y) {
		fmt.Printf("%d entries, %d in the second\n", len(x), len(y))
	}
	for _, key := range slices.Sorted(maps.Keys(x)) {
		if val, ok := y[key]; !ok {
			fmt.Printf("%s: %q, not in the second\n", key, x[key])
		} else if val != x[key] {
			fmt.Printf("%s: %q, %q in the second\n", key, x[key], val)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(y)) {
		if _, ok := x[key]; !ok {
			fmt.Printf("%s: %q, only in the second\n", key, y[key])
		}
	}
}

func mapValue(x interface{}) reflect.Value {
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Map {
		panic(fmt.Sprintf("%T is not a map", x))
	}
	return v
}

// pathOf returns the elements of keys, at least one.
func pathOf(keys interface{}) []reflect.Value {
	v := reflect.ValueOf(keys)
	if k := v.Kind(); k != reflect.Slice && k != reflect.Array || v.Len() == 0 {
		panic(fmt.Sprintf("%T is not a slice or array of keys", keys))
	}
	path := make([]reflect.Value, v.Len())
	for i := range path {
		// Through interface{}, so that the keys of a []interface{} have their own types.
		path[i] = reflect.ValueOf(v.Index(i).Interface())
	}
	return path
}
