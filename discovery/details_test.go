package discovery

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type testDetails struct {
	Names  []string    `json:"names"`
	Number int         `json:"number"`
	Filter *FilterList `json:"filter"`
	Shared *bool       `json:"shared"`
}

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		details  string
		want     testDetails
		warnings []string // a part of each
		wantErr  string   // a part of it
	}{
		"empty":       {},
		"white space": {details: " \n\n"},
		"all keys": {
			details: "names: [a, b]\nnumber: 3\nfilter: {action: Exclude, items: [x]}",
			want:    testDetails{Names: []string{"a", "b"}, Number: 3, Filter: &FilterList{Action: Exclude, Items: []string{"x"}}},
		},
		"JSON": {details: `{"names": ["a"]}`, want: testDetails{Names: []string{"a"}}},
		"unknown keys are warned of, and work": {
			details:  "names: [a]\nfilter: {items: [x], itms: [y]}\nother: 1",
			want:     testDetails{Names: []string{"a"}, Filter: &FilterList{Items: []string{"x"}}},
			warnings: []string{`unknown field "filter.itms": ignored; did you mean "items"?`, `unknown field "other": ignored`},
		},
		"a number for a list":      {details: "filter: {items: 3}", wantErr: "of test: filter.items: want a list of strings, it is a number"},
		"a string for a list":      {details: "names: foo", wantErr: "of test: names: want a list of strings, it is a string"},
		"a list for a string":      {details: "filter: {action: [a]}", wantErr: "of test: filter.action: want a string, it is a list"},
		"a number in a list":       {details: "names: [a, 3]", wantErr: "of test: names: want a string, it is a number"},
		"a string for a number":    {details: "number: x", wantErr: "of test: number: want a whole number, it is a string"},
		"a number with a fraction": {details: "number: 3.5", wantErr: "of test: number: want a whole number, it is the number 3.5"},
		"a list for a mapping":     {details: "filter: [a]", wantErr: "of test: filter: want a mapping of keys to values, it is a list"},
		"a mapping for true":       {details: "shared: {a: b}", wantErr: "of test: shared: want true or false, it is a mapping of keys to values"},
		"true for a mapping":       {details: "filter: true", wantErr: "of test: filter: want a mapping of keys to values, it is true or false"},
		"twice the same":           {details: "number: 1\nnumber: 2", wantErr: `of test: not YAML: line 2: key "number" already set`},
		"not YAML":                 {details: "names: [", wantErr: "of test: not YAML: line 1"},
		"a list":                   {details: "[a]", wantErr: "of test: want a mapping of keys to values, it is a list"},
		"another case":             {details: "Names: [a]", warnings: []string{`unknown field "Names": ignored; did you mean "names"?`}},
		"too long":                 {details: strings.Repeat("#", maxDetailsBytes+1), wantErr: "bytes, of"},
		"a bomb of nodes":          {details: "a: &a [x,x,x,x,x,x,x,x,x]\n" + bomb(), wantErr: "excessive aliasing"},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings []string
			var got testDetails
			r := Request{Details: tc.details, Warn: func(m string) { warnings = append(warnings, m) }}
			err := r.Decode("test", &got)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), "discoveryDetails of test") {
					t.Fatalf("Decode() = %v, want an error of the discoveryDetails of test with %q", err, tc.wantErr)
				}
				if !errors.Is(err, ErrInvalid) {
					t.Errorf("%v does not wrap ErrInvalid", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Decode() (-want +got):\n%s", diff)
			}
			if !slices.EqualFunc(warnings, tc.warnings, func(got, want string) bool { return strings.Contains(got, want) }) {
				t.Errorf("Decode() warns of %q, want %q", warnings, tc.warnings)
			}
		})
	}
	if err := (Request{Details: "x: 1"}).Decode("test", &testDetails{}); err != nil {
		t.Errorf("without Warn: %v", err)
	}
}

// bomb is YAML that is small and means 9^9 values.
func bomb() string {
	var b strings.Builder
	for c := 'b'; c <= 'i'; c++ {
		p := string(c - 1)
		b.WriteString(string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+p+",", 9), ",") + "]\n")
	}
	return b.String()
}

func TestFilterList(t *testing.T) {
	for name, tc := range map[string]struct {
		filter *FilterList
		values []string
		keeps  bool
		folds  bool
		all    bool
	}{
		"none":                       {values: []string{"a"}, keeps: true, folds: true, all: true},
		"include nothing":            {filter: &FilterList{Items: []string{}}, values: []string{"a"}},
		"exclude nothing":            {filter: &FilterList{Action: Exclude, Items: []string{}}, values: []string{"a"}, keeps: true, folds: true, all: true},
		"included":                   {filter: &FilterList{Items: []string{"a"}}, values: []string{"b", "a"}, keeps: true, folds: true},
		"included but for case":      {filter: &FilterList{Action: Include, Items: []string{"A"}}, values: []string{"a"}, folds: true},
		"not included":               {filter: &FilterList{Items: []string{"a"}}, values: []string{"b"}},
		"no value, include":          {filter: &FilterList{Items: []string{"a"}}},
		"no value, exclude":          {filter: &FilterList{Action: Exclude, Items: []string{"a"}}, keeps: true, folds: true},
		"excluded":                   {filter: &FilterList{Action: Exclude, Items: []string{"a"}}, values: []string{"b", "a"}},
		"excluded but for the case":  {filter: &FilterList{Action: Exclude, Items: []string{"A"}}, values: []string{"a"}, keeps: true},
		"nothing of it is left out":  {filter: &FilterList{Action: Exclude, Items: []string{"a"}}, values: []string{"b"}, keeps: true, folds: true},
		"the empty value is a value": {filter: &FilterList{Items: []string{""}}, values: []string{""}, keeps: true, folds: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.filter.Keeps(tc.values...); got != tc.keeps {
				t.Errorf("Keeps(%q) = %v, want %v", tc.values, got, tc.keeps)
			}
			if got := tc.filter.KeepsFold(tc.values...); got != tc.folds {
				t.Errorf("KeepsFold(%q) = %v, want %v", tc.values, got, tc.folds)
			}
			if got := tc.filter.KeepsAll(); got != tc.all {
				t.Errorf("KeepsAll() = %v, want %v", got, tc.all)
			}
			if err := tc.filter.Validate("test: filter"); err != nil {
				t.Error(err)
			}
		})
	}
	for want, filter := range map[string]*FilterList{
		"test: filter.items, the list of values, is missing":        {},
		`test: filter.action is "include": want Include or Exclude`: {Items: []string{}, Action: "include"},
	} {
		if err := filter.Validate("test: filter"); err == nil || err.Error() != want || !errors.Is(err, ErrInvalid) {
			t.Errorf("Validate() = %v, want %s", err, want)
		}
	}
}
