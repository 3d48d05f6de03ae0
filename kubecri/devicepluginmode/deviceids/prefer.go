package deviceids

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// candidate is an id that the kubelet may take.
type candidate struct {
	id       string
	instance *Instance // nil for an id that may stand for any
	index    int       // of the slot, where the id says it
	held     bool      // by this node, by this id: left over from a pod that is gone
	turn     int       // how many ids before it are of its Instance
}

// Prefer returns size of the available ids for one container, among them all of included, which the
// kubelet has chosen already: free slots before those left over from pods that are gone, and distinct
// Instances before several slots of one. It returns an error when fewer can be allocated.
func (r *Resource) Prefer(available, included []string, size int) ([]string, error) {
	if r.Unique == v0.UniquePerContainer {
		return r.preferDistinct(available, included, size)
	}
	var all []candidate
	var refused []error
	for _, id := range without(available, included) {
		grants, err := r.Map([]string{id})
		if err != nil {
			refused = append(refused, err)
			continue
		}
		name := grants[0].Slot
		all = append(all, candidate{id: id, instance: r.instance(name.Instance), index: name.Index,
			held: grants[0].Held})
	}
	free := map[*Instance]int{} // to count them takes as long as there are slots
	for _, in := range r.Instances {
		free[in] = in.freeSlots()
	}
	// The Instance with the most free slots first, and of it the highest index, see highest; of an Instance
	// alone the lowest.
	slices.SortFunc(all, func(a, b candidate) int {
		byIndex := cmp.Compare(b.index, a.index)
		if r.Level == v1alpha1.InstanceLevel {
			byIndex = -byIndex
		}
		return cmp.Or(cmp.Compare(rank(a.held), rank(b.held)), cmp.Compare(free[b.instance], free[a.instance]),
			cmp.Compare(a.instance.Name, b.instance.Name), byIndex)
	})
	r.spread(all, included)
	return first(included, all, size, refused)
}

// spread orders the candidates so that each Instance has its turn before any has a second
// one. Candidates of equal turn stay in their order.
func (r *Resource) spread(all []candidate, included []string) {
	turns := map[*Instance]int{}
	for _, id := range included {
		if in, _, ok := r.held(id); ok {
			turns[in]++
		}
	}
	for i := range all {
		all[i].turn = turns[all[i].instance]
		turns[all[i].instance]++
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rank(a.held), rank(b.held)), cmp.Compare(a.turn, b.turn))
	})
}

// preferDistinct takes as many ids that stand for no slot yet as there are Instances for
// them, and fills up with ids that do: of Instances that are full first, which the others
// cannot get a slot of.
func (r *Resource) preferDistinct(available, included []string, size int) ([]string, error) {
	used := map[string]bool{}
	open := 0 // of included: without a slot
	for _, id := range included {
		if in, _, ok := r.held(id); ok {
			used[in.Name] = true
		} else {
			open++
		}
	}
	missing := size - len(included)
	free := 0 // Instances that fresh ids can get slots of
	for _, in := range r.Instances {
		if in.freeSlots() > 0 && !used[in.Name] {
			free++
		}
	}
	have := len(used) + free
	var fresh, full, others []candidate // full and others have slots: of Instances without and with free ones
	var refused []error
	rest := without(available, included)
	slices.SortFunc(rest, compareIDs)
	for _, id := range rest {
		if err := r.inUse(id); err != nil {
			refused = append(refused, err)
			continue
		}
		in, _, ok := r.held(id)
		switch {
		case !ok && r.dynamic(id):
			fresh = append(fresh, candidate{id: id})
		case !ok || used[in.Name]:
		case in.freeSlots() == 0:
			used[in.Name] = true
			full = append(full, candidate{id: id})
		default:
			used[in.Name] = true
			others = append(others, candidate{id: id})
		}
	}
	held := slices.Concat(full, others)
	for n := min(max(missing, 0), len(fresh)); n >= 0; n-- {
		keep := max(missing-n, 0) // of held
		if keep > len(held) {
			break
		}
		if n+open <= free-max(keep-len(full), 0) {
			return first(included, append(slices.Clone(fresh[:n]), held[:keep]...), size, nil)
		}
	}
	return nil, because(r.shortage(size, min(have+len(full), len(included)+len(fresh)+len(held))), refused)
}

// first returns included and the first of the candidates, size of them together. refused
// says why other ids that the kubelet offers cannot be given.
func first(included []string, all []candidate, size int, refused []error) ([]string, error) {
	ids := slices.Clone(included)
	slices.SortFunc(ids, compareIDs)
	for _, c := range all {
		if len(ids) >= size {
			break
		}
		ids = append(ids, c.id)
	}
	if len(ids) < size {
		return nil, because(fmt.Errorf("%d devices are requested, and %d can be given", size, len(ids)), refused)
	}
	return ids, nil
}

// because is the error with why ids that the kubelet offers cannot be given.
func because(err error, refused []error) error {
	if len(refused) == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", err, errors.Join(refused[:min(len(refused), maxReasons)]...))
}

// without returns the available ids that are not included, each once.
func without(available, included []string) []string {
	skip := make(map[string]bool, len(available)+len(included))
	for _, id := range included {
		skip[id] = true
	}
	var rest []string
	for _, id := range available {
		if !skip[id] {
			skip[id] = true
			rest = append(rest, id)
		}
	}
	return rest
}

// rank orders false before true.
func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}
