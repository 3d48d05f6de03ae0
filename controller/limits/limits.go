// Package limits keeps the limits of Configurations: how many Instances each has, or how
// many broker pods. What exists stays, also beyond a limit; what is beyond it and does not
// exist waits, and is served when there is room, the oldest first.
//
// A Keeper counts what is being made as well as what exists, so that workers that decide
// about several Instances at once do not use the same room.
package limits

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Limit is how much there may be of one Configuration.
type Limit struct {
	// PerNode is for each node by itself. Those that may be on any of several nodes have PerNode
	// times as many places, less what is on these nodes, and on no certain node.
	PerNode int
	Total   int
}

// Places is how much an Instance has, by node; under "" what is on no certain node.
type Places map[string]int

// Among is under which node those count that may be on any of the nodes.
func Among(nodes []string) string {
	if len(nodes) == 1 {
		return nodes[0]
	}
	return ""
}

// Instance is one that something is decided about.
type Instance struct {
	Key           types.NamespacedName
	Configuration types.NamespacedName
	// Since orders those that wait, before their names. When an Instance waits again at
	// once, the earlier time counts.
	Since time.Time
	// Exists is what the cache shows of it.
	Exists Places
}

// Keeper keeps one kind of limit of all Configurations. Its methods may be called
// concurrently.
type Keeper struct {
	// existing returns what the cache shows of all Instances of a Configuration, by name. It
	// is called once for each Configuration, before the first decision.
	existing func(configuration types.NamespacedName) (map[string]Places, error)
	// wake is called, without the lock, with each Instance that waited and now has room, which is kept for it until
	// something is decided about it, and with one that may have room. Something has to be decided about each.
	wake func(types.NamespacedName)

	mu sync.Mutex
	of map[types.NamespacedName]*account
}

// New makes a Keeper.
func New(existing func(types.NamespacedName) (map[string]Places, error), wake func(types.NamespacedName)) *Keeper {
	return &Keeper{existing: existing, wake: wake, of: map[types.NamespacedName]*account{}}
}

// Decide calls decide, which takes room for all that the Instance is to have. What it had
// and does not take is given back once it does not exist. decide must not call the Keeper.
// changed is set when more or less of the Instance is withheld than before.
func (k *Keeper) Decide(i Instance, limit Limit, decide func(*Room)) (changed bool, _ error) {
	k.mu.Lock()
	a := k.of[i.Configuration]
	if a == nil {
		existing, err := k.existing(i.Configuration)
		if err != nil {
			k.mu.Unlock()
			return false, fmt.Errorf("count what Configuration %s has: %w", i.Configuration, err)
		}
		a = newAccount(i.Configuration.Namespace, existing)
		k.of[i.Configuration] = a
	}
	var woken []types.NamespacedName
	if a.limit != limit {
		a.limit, a.changed = limit, true
		woken = a.serve() // those that wait come first
	}
	changed = a.decide(i, decide)
	woken = append(woken, a.serve()...)
	k.mu.Unlock()
	for _, key := range woken {
		k.wake(key)
	}
	return changed, nil
}

// Leave notes that the Instance is to have nothing more: only what exists of it counts.
func (k *Keeper) Leave(i Instance) {
	k.mu.Lock()
	a := k.of[i.Configuration]
	if a == nil {
		k.mu.Unlock()
		return
	}
	a.decide(i, func(*Room) {})
	woken := a.serve()
	k.mu.Unlock()
	for _, key := range woken {
		k.wake(key)
	}
}

// Forget forgets a Configuration that is gone.
func (k *Keeper) Forget(configuration types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, configuration)
}

// Sum is a Configuration's limit in numbers.
type Sum struct {
	Used      int // what exists, and what is being made
	Withheld  int // what is beyond the limit
	FullNodes int // nodes that have no room
	FirstFull string
	// TotalReached is set when some wait because of Limit.Total, and not of their nodes.
	TotalReached bool
	// NodesWithoutRoom is on how many nodes the oldest that waits found no room, when no node is
	// full: it takes several places at once, or may be on any of several nodes.
	NodesWithoutRoom int
}

// Sum sums up a Configuration.
func (k *Keeper) Sum(configuration types.NamespacedName) Sum {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.of[configuration]; a != nil {
		return a.sum()
	}
	return Sum{}
}

// Metric shows what is withheld, by the names of Configurations.
func (k *Keeper) Metric(gauge *prometheus.Desc) prometheus.Collector {
	return prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		for configuration, n := range k.withheld() {
			ch <- prometheus.MustNewConstMetric(gauge, prometheus.GaugeValue, float64(n), configuration)
		}
	})
}

// withheld is what is beyond the limit, by the names of Configurations.
func (k *Keeper) withheld() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	withheld := make(map[string]int, len(k.of))
	for configuration, a := range k.of {
		withheld[configuration.Name] += a.sum().Withheld
	}
	return withheld
}

// Room is what there is for one Instance, while something is decided about it.
type Room struct {
	account *account
	had     Places // also what exists
	taken   Places
	blocked waiter
}

// Has reports whether the Instance has a place on the node, or had one when something was
// decided about it last.
func (r *Room) Has(node string) bool { return r != nil && r.had[node] > 0 }

// Take takes n places on a node, and reports whether there was room. Places that the
// Instance has are taken again whatever the limit is. A nil Room has no limits.
func (r *Room) Take(node string, n int) bool { return r.TakeAmong([]string{node}, n) }

// TakeAmong is as Take, of n places that may be on any of the nodes.
func (r *Room) TakeAmong(nodes []string, n int) bool {
	if r == nil {
		return true
	}
	node := Among(nodes)
	if have := r.had[node]; have < n {
		more := n - have
		switch a := r.account; {
		case a.used+more > a.limit.Total:
			r.blocked.byTotal, r.blocked.need = true, more
			return false
		case !a.hasRoomAmong(nodes, more):
			r.blocked.nodes, r.blocked.need, r.blocked.among = append(r.blocked.nodes, nodes...), more, len(nodes) > 1
			return false
		default:
			a.add(node, more)
			r.had[node] = n
		}
	}
	r.taken[node] = max(r.taken[node], n)
	return true
}

// Withhold notes how much the Instance is to have and found no room for.
func (r *Room) Withhold(n int) {
	if r != nil {
		r.blocked.withheld += n
	}
}

func union(a, b Places) Places {
	all := make(Places, len(a)+len(b))
	maps.Copy(all, a)
	for node, n := range b {
		all[node] = max(all[node], n)
	}
	return all
}
