package ui

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// Update takes a page from one State to the next. A part that is nil is as it was; in a
// Full update no part is nil, and a page forgets what it had.
type Update struct {
	// Seq counts a Hub's updates. An update follows the one before it, or is full.
	Seq  uint64 `json:"seq"`
	Full bool   `json:"full,omitempty"`
	// Time is the server's, in milliseconds since 1970: ages are counted from it.
	Time int64 `json:"time"`

	Configurations []view.Configuration `json:"configurations,omitzero"`
	Devices        []Device             `json:"devices,omitzero"` // those that are new or have changed
	Gone           []string             `json:"gone,omitempty"`   // devices that are no longer there
	Reach          map[string][]string  `json:"reach,omitzero"`
	Nodes          []Node               `json:"nodes,omitzero"`
	Pods           []Pod                `json:"pods,omitzero"`
	Problems       []view.Finding       `json:"problems,omitzero"`
	Missing        []string             `json:"missing,omitzero"`
	Error          *string              `json:"error,omitempty"`

	// Events are new, oldest first; of a great many only the last ones.
	Events []Event `json:"events,omitzero"`
	// Points are new, or replace one of the same time.
	Points []Point `json:"points,omitzero"`
	// Recorded is since when nothing is missing from Events and Points, in
	// milliseconds since 1970: before that only what is still there is known.
	Recorded int64 `json:"recorded,omitempty"`
}

// About says what the page shows, and to whom.
type About struct {
	Cluster   string `json:"cluster"`             // the kubeconfig's context, or --cluster-name
	User      string `json:"user,omitempty"`      // when the user has logged in
	Namespace string `json:"namespace,omitempty"` // what is read when the user may not read all
	Logout    bool   `json:"logout,omitempty"`    // whether there is a session to end
}

// full is an update from nothing to the state.
func full(s *State) Update {
	u := Update{Full: true, Configurations: notNil(s.Configurations), Reach: s.Reach, Nodes: notNil(s.Nodes), Pods: notNil(s.Pods),
		Problems: notNil(s.Problems), Missing: notNil(s.Missing), Error: &s.Error, Devices: make([]Device, 0, len(s.Devices))}
	for _, name := range slices.SortedFunc(maps.Keys(s.Devices), compareNames(s.Devices)) {
		u.Devices = append(u.Devices, s.Devices[name])
	}
	return u
}

// compareNames orders devices by Configuration, then by name.
func compareNames(devices map[string]Device) func(a, b string) int {
	return func(a, b string) int {
		return cmp.Or(cmp.Compare(devices[a].Configuration, devices[b].Configuration), cmp.Compare(a, b))
	}
}

// difference is an update from one state to another, and whether they differ.
func difference(from, to *State) (Update, bool) {
	var u Update
	differ := false
	part(&u.Configurations, &differ, from.Configurations, to.Configurations)
	part(&u.Nodes, &differ, from.Nodes, to.Nodes)
	part(&u.Pods, &differ, from.Pods, to.Pods)
	part(&u.Problems, &differ, from.Problems, to.Problems)
	part(&u.Missing, &differ, from.Missing, to.Missing)
	if from.Error != to.Error {
		u.Error, differ = &to.Error, true
	}
	if !maps.EqualFunc(from.Reach, to.Reach, func(a, b []string) bool { return len(a) == len(b) }) { // a key is a hash of the names
		u.Reach, differ = to.Reach, true
	}
	for _, name := range slices.Sorted(maps.Keys(to.Devices)) {
		d := to.Devices[name]
		if before, found := from.Devices[name]; !found || !before.equal(&d) {
			u.Devices = append(u.Devices, d)
		}
	}
	for name := range from.Devices {
		if _, found := to.Devices[name]; !found {
			u.Gone = append(u.Gone, name)
		}
	}
	slices.Sort(u.Gone)
	return u, differ || len(u.Devices)+len(u.Gone) > 0
}

func part[T any](out *[]T, differ *bool, from, to []T) {
	if len(from)+len(to) > 0 && !reflect.DeepEqual(from, to) {
		*out, *differ = notNil(to), true
	}
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (d *Device) equal(o *Device) bool {
	return d.Name == o.Name && d.Namespace == o.Namespace && d.Configuration == o.Configuration && d.ID == o.ID && d.Label == o.Label && d.Shared == o.Shared &&
		d.Capacity == o.Capacity && d.Reach == o.Reach && slices.Equal(d.Taken, o.Taken) && slices.Equal(d.Problems, o.Problems)
}
