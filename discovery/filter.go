package discovery

import (
	"slices"
	"strings"
)

// Actions of a FilterList.
const (
	Include = "Include"
	Exclude = "Exclude"
)

// FilterList is Akri's list of values to keep or to leave out: a part of
// discoveryDetails. A nil one keeps everything.
type FilterList struct {
	// Items are the values. They must be there; with Include an empty list keeps nothing.
	Items []string `json:"items"`
	// Action is Include, which is the default, or Exclude.
	Action string `json:"action,omitempty"`
}

// Validate returns an error, which wraps ErrInvalid, for a list that cannot be meant.
// path is where the list is, such as "onvif: scopes".
func (f *FilterList) Validate(path string) error {
	switch {
	case f == nil:
		return nil
	case f.Items == nil:
		return Invalidf("%s.items, the list of values, is missing", path)
	case f.Action != "" && f.Action != Include && f.Action != Exclude:
		return Invalidf("%s.action is %.64q: want %s or %s", path, f.Action, Include, Exclude)
	}
	return nil
}

// Keeps reports whether something with these values stays: with Include when one of
// them is an item, with Exclude when none is.
func (f *FilterList) Keeps(values ...string) bool {
	return f.keeps(values, func(a, b string) bool { return a == b })
}

// KeepsFold is Keeps without regard to case.
func (f *FilterList) KeepsFold(values ...string) bool { return f.keeps(values, strings.EqualFold) }

func (f *FilterList) keeps(values []string, equal func(a, b string) bool) bool {
	if f == nil {
		return true
	}
	found := slices.ContainsFunc(values, func(value string) bool {
		return slices.ContainsFunc(f.Items, func(item string) bool { return equal(item, value) })
	})
	return found == (f.Action != Exclude)
}

// KeepsAll reports whether the list leaves nothing out, whatever the values are: what
// they are need not be found out.
func (f *FilterList) KeepsAll() bool { return f == nil || f.Action == Exclude && len(f.Items) == 0 }
