package brokers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// Sum is how the brokers of a Configuration's Instances fare.
type Sum struct {
	Instances int // that were looked at
	Desired   int
	Ready     int
	Outdated  int // pods of an earlier spec or of other properties
	Updated   int // pods of neither
	// Expected is how many Instances have a broker that runs or is to come.
	Expected int
	// Problem is that of the first Instance, by name, that has one; FirstWith is its
	// name, and With how many have one.
	Problem   *Problem
	FirstWith string
	With      int
	// NotReady is a pod that is not Ready: of the first Instance, by name, that has a
	// failing one, else of the first that has any.
	NotReady NotReady
	// Limit is how many pods there are, and how many more there are to be.
	Limit limits.Sum
}

// results keeps what was found of each Instance, by Configuration.
type results struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[string]result // by Configuration and Instance's name
	// changed is called, without the lock, with each Instance whose result is another.
	changed func(types.NamespacedName)
}

type result struct {
	desired, ready, outdated, updated, withheld int
	// expected is set while a broker runs or is to come.
	expected bool
	problem  Problem // the zero Problem is none
	notReady NotReady
}

func (r *results) set(instance types.NamespacedName, now result) {
	key := naming.ConfigurationOf(instance)
	r.mu.Lock()
	if r.of[key] == nil {
		r.of[key] = map[string]result{}
	}
	before, known := r.of[key][instance.Name]
	r.of[key][instance.Name] = now
	r.mu.Unlock()
	if !known || before != now {
		r.changed(instance)
	}
}

func (r *results) forget(instance types.NamespacedName) {
	key := naming.ConfigurationOf(instance)
	r.mu.Lock()
	_, known := r.of[key][instance.Name]
	if delete(r.of[key], instance.Name); len(r.of[key]) == 0 {
		delete(r.of, key)
	}
	r.mu.Unlock()
	if known {
		r.changed(instance)
	}
}

// expected reports whether a broker of the Instance runs or is to come; known is false
// when the Instance has not been looked at.
func (r *results) expected(instance types.NamespacedName) (expected, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, known := r.of[naming.ConfigurationOf(instance)][instance.Name]
	return one.expected, known
}

func (r *results) sum(configuration types.NamespacedName) Sum {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s Sum
	ofInstance := "" // that NotReady is of
	for name, one := range r.of[configuration] {
		s.Instances++
		s.Desired += one.desired
		s.Ready += one.ready
		s.Outdated += one.outdated
		s.Updated += one.updated
		if one.expected {
			s.Expected++
		}
		if n := one.notReady; n.Why != "" && (s.NotReady.Why == "" || n.Failing && !s.NotReady.Failing || n.Failing == s.NotReady.Failing && name < ofInstance) {
			s.NotReady, ofInstance = n, name
		}
		if one.problem == (Problem{}) {
			continue
		}
		if s.With++; s.FirstWith == "" || name < s.FirstWith {
			s.FirstWith, s.Problem = name, &one.problem
		}
	}
	return s
}
