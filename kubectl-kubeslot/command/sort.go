package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"k8s.io/kubectl/pkg/cmd/get"
)

// field is what a JSONPath expression names, as --sort-by and custom columns have it.
func field(expression string) (*jsonpath.JSONPath, error) {
	path, err := get.RelaxedJSONPathExpression(expression)
	if err != nil {
		return nil, fmt.Errorf("%q is no JSONPath expression such as .metadata.name: %w", expression, err)
	}
	parsed := jsonpath.New("field").AllowMissingKeys(true)
	if err := parsed.Parse(path); err != nil {
		return nil, fmt.Errorf("%q is no JSONPath expression such as .metadata.name: %w", expression, err)
	}
	return parsed, nil
}

// sorted orders rows by the field that --sort-by names; those without it come first, as in kubectl. kubectl's own
// sorter is not used: it ends the process when it meets what is neither a number nor a string.
func sorted[T any](s *selection, kind string, rows []T) ([]T, error) {
	if s.sortBy == "" || len(rows) == 0 {
		return rows, nil
	}
	by, err := field(s.sortBy)
	if err != nil {
		return nil, fmt.Errorf("--sort-by: %w", err)
	}
	type keyed struct {
		key any // nil for none
		row T
	}
	all, found := make([]keyed, len(rows)), false
	for i := range rows {
		o, err := object(kind, &rows[i])
		if err != nil {
			return nil, err
		}
		values, err := by.FindResults(o.Object)
		if err != nil {
			return nil, fmt.Errorf("--sort-by %s: %w", s.sortBy, err)
		}
		all[i].row = rows[i]
		if len(values) > 0 && len(values[0]) > 0 {
			all[i].key, found = values[0][0].Interface(), true
		}
	}
	if !found {
		return nil, fmt.Errorf("--sort-by %s: no %s has this field; -o yaml shows those that there are", s.sortBy, kind)
	}
	sortable := true
	slices.SortStableFunc(all, func(a, b keyed) int {
		order, ok := compare(a.key, b.key)
		sortable = sortable && ok
		return order
	})
	if !sortable {
		return nil, fmt.Errorf("--sort-by %s: the field is neither a number, a text nor true or false", s.sortBy)
	}
	ordered := make([]T, len(rows))
	for i := range all {
		ordered[i] = all[i].row
	}
	return ordered, nil
}

// compare orders what is in JSON: numbers, texts, and false before true; nil is before all. It is false of
// what has no order.
func compare(a, b any) (order int, ok bool) {
	switch a := a.(type) {
	case nil:
		if b == nil {
			return 0, true
		}
		return -1, true
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b), true
		}
	case string:
		if b, ok := b.(string); ok {
			return strings.Compare(a, b), true
		}
	case bool:
		if b, ok := b.(bool); ok {
			return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)), true
		}
	}
	if b == nil {
		return 1, true
	}
	return 0, false
}
