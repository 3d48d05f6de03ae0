package slotsearch

import (
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Problem is what a pod asks for of one Configuration.
type Problem struct {
	// Unique is the scope in force, "" when slots alone count.
	Unique akriv0.UniqueScope
	// Spans say when each of the pod's containers runs.
	Spans []Span
	// Wants are in the order of the pod's containers.
	Wants []*Want
	// Instances are those that the Wants name, and others with free slots in the given order:
	// all that the node reaches, or at least as many as the Wants ask for together.
	Instances []*Instance
	// Order says which of two Instances slots are taken from first: below 0 for a.
	Order func(a, b *Instance) int
	// Budget is shared with other searches; nil for none.
	Budget *Budget
	// GaveUp is part of the answer: a want is short, and the search ended before it had tried everything.
	GaveUp bool

	last int // when all containers run that do so until the end
}

// Span is the time in which a container runs, both ends included. Containers with spans
// that meet run together.
type Span struct{ From, To int }

// Want is a container's request of one resource.
type Want struct {
	Container int // index of its Span
	Count     int // slots, at least 1
	// Instance is the one that the container asks for by name, nil when any will do.
	Instance *Instance
	// Got is the answer: Count slots.
	Got []Pick

	chosen []*Instance
	first  int // how many firstFit had chosen when it failed
}

// Found is how many slots were found for it before another want was short.
func (w *Want) Found() int { return max(w.first, len(w.chosen)) }

// Pick is the Slot-th of the slots that the pod takes of the Instance, from 0 on.
// Containers that do not run together may have the same one.
type Pick struct {
	Instance *Instance
	Slot     int
}

// Instance is a device, as the pod may use it.
type Instance struct {
	Name string
	Free int // slots that the pod may take
	// UsedOnNode is set when another pod on the node has a slot of it that was not asked for
	// by name: with UniquePerNode nobody else gets such a slot there.
	UsedOnNode bool
	// Of is what the caller knows the Instance by.
	Of any
	// Slots is the answer: those that the pod takes.
	Slots []Slot

	// by level: which containers have a slot, how many are in use at each time, and how many
	// slots the pod needs, which is the most in use at one time.
	users [2]containers
	inUse [2][]int
	slots [2]int
	// word and time hold users and inUse of most pods.
	word [2]uint64
	time [2]int
}

// Slot is a slot that the pod takes of an Instance.
type Slot struct {
	ByName bool // it is asked for by name
	Index  int  // for the caller, who knows which slots are free

	until int // when the last of the containers ends that use it in turn; below 0 for none
	from  int // when the one starts that uses it from then on; after all for none
}

// containers is a set of containers, a bit each.
type containers []uint64

func (c containers) has(i int) bool { return c != nil && c[i/64]&(1<<(i%64)) != 0 }

func (c containers) flip(i int) { c[i/64] ^= 1 << (i % 64) }

// Slots are used at one of two levels. One slot is never used at both: the node's claim on
// it has one form.
const (
	anyInstance = iota
	byName
)

func (w *Want) level() int {
	if w.Instance != nil {
		return byName
	}
	return anyInstance
}

// Left is how many of the free slots the pod has not taken yet.
func (in *Instance) Left() int { return in.Free - in.slots[anyInstance] - in.slots[byName] }

// slotsWith is slots if one more were used in a span.
func (in *Instance) slotsWith(level int, s Span) int {
	if in.inUse[level] == nil {
		return 1
	}
	return max(in.slots[level], slices.Max(in.inUse[level][s.From:s.To+1])+1)
}

func (in *Instance) usedBy(container int) bool {
	return in.users[anyInstance].has(container) || in.users[byName].has(container)
}

// alike reports whether it makes no difference to the search which of the two is chosen.
func (in *Instance) alike(other *Instance) bool {
	return in.Free == other.Free && in.UsedOnNode == other.UsedOnNode &&
		same(in.users[byName], other.users[byName]) && same(in.users[anyInstance], other.users[anyInstance])
}

func same(a, b containers) bool {
	if len(a) != len(b) { // one is nil
		a = slices.Concat(a, b)
		return !slices.ContainsFunc(a, func(word uint64) bool { return word != 0 })
	}
	return slices.Equal(a, b)
}

// add has a container use a slot more.
func (p *Problem) add(in *Instance, container, level int) {
	if in.inUse[level] == nil {
		in.inUse[level], in.users[level] = in.time[level:level+1], in.word[level:level+1]
		if p.last > 0 {
			in.inUse[level] = make([]int, p.last+1)
		}
		if n := len(p.Spans); n > 64 {
			in.users[level] = make(containers, n/64+1)
		}
	}
	s := p.Spans[container]
	in.slots[level] = in.slotsWith(level, s)
	in.users[level].flip(container)
	for t := s.From; t <= s.To; t++ {
		in.inUse[level][t]++
	}
}

// remove undoes add, where no container has two slots of the Instance.
func (p *Problem) remove(in *Instance, container, level int) {
	in.users[level].flip(container)
	for t := p.Spans[container].From; t <= p.Spans[container].To; t++ {
		in.inUse[level][t]--
	}
	in.slots[level] = slices.Max(in.inUse[level])
}
