package deviceslices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// rate is what a node may have written in the long run, in bytes a second: less than 1 MB a
	// minute. It is shared by the Configurations that have spent some of their burst.
	rate = 16 << 10
	// writeCost is what a write costs at least: of a slice, and of the Instance that the controller
	// makes of each device. In the long run there is less than one of either a second.
	writeCost = rate
	// A Configuration's burst is burstBase, 32 full slices, and for each device that it may have
	// burstPerDevice: the device may appear, go, appear again and change.
	burstBase      = 32 * v1alpha1.MaxSliceBytes
	burstPerDevice = 4 * writeCost
	// reserve is what devices that change again and again leave of the burst, 8 full slices: a device
	// that appears, or changes for the first time, is written at once.
	reserve = 8 * v1alpha1.MaxSliceBytes
	// gathered is what has to be there before some of the waiting changes are written, if not all can
	// be: one write of a slice with many changes costs less than many writes.
	gathered = 60 * rate
	// maxDebt bounds how long devices that go, which never wait, make others of their Configuration
	// wait: 17 minutes, times the Configurations that have spent.
	maxDebt = 1024 * rate

	// A device that appears or changes again waits for minWait since it was written, and each time for
	// twice as long, up to maxWait: five times are in one pass each. After forgottenAfter without a
	// change this begins anew.
	minWait        = time.Second / 16
	maxWait        = time.Minute
	forgottenAfter = 2 * maxWait
)

// reasonHeldBack is the reason of the problem of a Configuration some of whose changes wait.
const reasonHeldBack = "DevicesChangeTooOften"

// budget decides which changes of devices are written now, and which wait. A change that waits is
// written as what is newest then. The zero value is that nothing was written yet. It reads no clock.
type budget struct {
	// accounts are those of Configurations that have spent some of their burst.
	accounts map[v1alpha1.ConfigurationReference]*account
	refilled time.Time
	// paces are those of devices that changed lately.
	paces map[deviceKey]*pace
	// waiting is since when devices are held back that appear or change for the first time.
	waiting map[deviceKey]time.Time
	// late are the Configurations that have changes held back.
	late map[v1alpha1.ConfigurationReference]lateness
	// next is when what waits is to be looked at again; zero when nothing waits.
	next time.Time
}

// account has what is left of a burst, in bytes. It may be a debt.
type account struct{ left, burst float64 }

// pace is how often one device is written.
type pace struct {
	written time.Time     // the last change
	wait    time.Duration // from then to the next
	changed time.Time     // when a change of it was last seen, written or not
}

func (p *pace) due() time.Time { return p.written.Add(p.wait) }

// lateness is since when a Configuration's changes are held back.
type lateness struct {
	device string // the first that was, by its id
	last   time.Time
}

// plan is plan of what may be written now. held has how many devices of each Configuration wait.
func (b *budget) plan(v *view, now time.Time) (first, then []change, held map[v1alpha1.ConfigurationReference]int) {
	b.begin(now)
	v.Problems = append(slices.Clip(v.Problems), b.problems(v)...)
	first, then = plan(v)
	changes := slices.Concat(first, then)
	waiting := b.hold(v, differences(v.slices, changes), now)
	if len(waiting) == 0 {
		return first, then, nil
	}
	first, then = plan(v.without(waiting, changes))
	held = map[v1alpha1.ConfigurationReference]int{}
	for key := range waiting {
		if key.hash != ofProblems {
			held[key.configuration]++
		}
	}
	return first, then, held
}

// begin adds what has come back since the last time, and forgets devices that are steady.
func (b *budget) begin(now time.Time) {
	if b.accounts == nil {
		b.accounts, b.paces = map[v1alpha1.ConfigurationReference]*account{}, map[deviceKey]*pace{}
		b.late, b.waiting = map[v1alpha1.ConfigurationReference]lateness{}, map[deviceKey]time.Time{}
	}
	back := b.share() * now.Sub(b.refilled).Seconds()
	maps.DeleteFunc(b.accounts, func(_ v1alpha1.ConfigurationReference, a *account) bool {
		a.left += back
		return a.left >= a.burst
	})
	b.refilled, b.next = now, time.Time{}
	maps.DeleteFunc(b.paces, func(_ deviceKey, p *pace) bool { return now.Sub(p.changed) >= forgottenAfter })
	maps.DeleteFunc(b.late, func(_ v1alpha1.ConfigurationReference, l lateness) bool {
		return now.Sub(l.last) >= forgottenAfter
	})
	for _, l := range b.late {
		b.lookAt(l.last.Add(forgottenAfter)) // the problem ends
	}
}

// share is what comes back of each account, in bytes a second.
func (b *budget) share() float64 { return rate / float64(max(len(b.accounts), 1)) }

func (b *budget) lookAt(at time.Time) { b.next = reports.Earlier(b.next, at) }

// left is what the Configuration has left.
func (b *budget) left(v *view, ref v1alpha1.ConfigurationReference) float64 {
	burst := v.burst(ref)
	a := b.accounts[ref]
	if a == nil {
		return burst
	}
	if burst < a.burst { // what was spent of the larger burst is no debt
		a.left = min(a.left, burst)
	} else {
		a.left += burst - a.burst
	}
	a.burst = burst
	return a.left
}

// burst is the Configuration's when it has spent nothing.
func (v *view) burst(ref v1alpha1.ConfigurationReference) float64 {
	return float64(burstBase + burstPerDevice*v.Known[ref].MaxDevices)
}

// wrote takes what changes cost that were written, and remembers which devices changed.
func (b *budget) wrote(v *view, changes []change, now time.Time) {
	bills := map[v1alpha1.ConfigurationReference]*bill{}
	for _, d := range differences(v.slices, changes) {
		ref := d.key.configuration
		if bills[ref] == nil {
			bills[ref] = &bill{}
		}
		bills[ref].add(&d)
		if d.urgent {
			continue
		}
		p := b.paces[d.key]
		if p == nil {
			p = &pace{}
			b.paces[d.key] = p
		}
		p.written, p.changed, p.wait = now, now, min(max(2*p.wait, minWait), maxWait)
	}
	for ref, bill := range bills {
		left := b.left(v, ref)
		b.accounts[ref] = &account{left: max(left-float64(bill.bytes), -maxDebt), burst: v.burst(ref)}
	}
}

// hold returns the devices whose changes wait. Of each Configuration, what must not wait is taken
// first, then devices that appear or change for the first time, then those that change again.
func (b *budget) hold(v *view, all []difference, now time.Time) map[deviceKey]bool {
	of := map[v1alpha1.ConfigurationReference][]difference{}
	for _, d := range all {
		of[d.key.configuration] = append(of[d.key.configuration], d)
	}
	held := map[deviceKey]bool{}
	for ref, all := range of {
		var taken bill
		var steady, again []difference
		for _, d := range all {
			p := b.paces[d.key]
			if p != nil {
				p.changed = now
			}
			switch {
			case d.urgent:
				taken.add(&d)
			case p == nil:
				steady = append(steady, d)
			case p.due().After(now):
				held[d.key] = true
				b.lookAt(p.due())
			default:
				again = append(again, d)
			}
		}
		b.orderSteady(steady, now)
		b.order(again)
		left := int(b.left(v, ref))
		b.take(&taken, steady, left, held, now)
		b.take(&taken, again, left-reserve, held, now)
		for _, d := range steady {
			if held[d.key] && b.waiting[d.key].IsZero() {
				b.waiting[d.key] = now
			}
		}
	}
	maps.DeleteFunc(b.waiting, func(key deviceKey, _ time.Time) bool { return !held[key] })
	return held
}

// orderSteady puts the devices first that wait the longest: names that are new each second delay no older one.
func (b *budget) orderSteady(all []difference, now time.Time) {
	since := func(d difference) time.Time {
		if at, ok := b.waiting[d.key]; ok {
			return at
		}
		return now
	}
	slices.SortStableFunc(all, func(x, y difference) int { return since(x).Compare(since(y)) })
}

// order puts the devices first that wait the longest, with others of their slice, which cost little more.
func (b *budget) order(all []difference) {
	oldest := map[string]time.Time{}
	for _, d := range all {
		if at, ok := oldest[d.slice()]; !ok || b.paces[d.key].written.Before(at) {
			oldest[d.slice()] = b.paces[d.key].written
		}
	}
	slices.SortFunc(all, func(x, y difference) int {
		return cmp.Or(oldest[x.slice()].Compare(oldest[y.slice()]), cmp.Compare(x.slice(), y.slice()),
			b.paces[x.key].written.Compare(b.paces[y.key].written), cmp.Compare(x.id, y.id))
	})
}

// take takes all of the changes, if what is taken then costs no more than most. Otherwise it takes as many
// as that allows, once enough is gathered, and the others are held.
func (b *budget) take(taken *bill, all []difference, most int, held map[deviceKey]bool, now time.Time) {
	total := bill{maps.Clone(taken.slices), taken.bytes}
	for i := range all {
		total.add(&all[i])
	}
	if len(all) == 0 || total.bytes <= most {
		*taken = total
		return
	}
	short := min(total.bytes, taken.bytes+gathered) - most
	for i := range all {
		if d := &all[i]; short <= 0 && taken.bytes+taken.cost(d) <= most {
			taken.add(d)
		} else {
			held[d.key] = true
			b.isLate(d, now)
		}
	}
	b.lookAt(now.Add(max(maxPause, time.Duration(float64(short)/b.share()*float64(time.Second)))))
}

// isLate remembers that the budget holds a change back.
func (b *budget) isLate(d *difference, now time.Time) {
	l, ok := b.late[d.key.configuration]
	if !ok {
		l.device = d.id
		b.lookAt(now.Add(maxPause)) // to report it
	}
	l.last = now
	b.late[d.key.configuration] = l
	b.lookAt(now.Add(maxWait)) // before it counts as ended
}

// problems has one for each Configuration that has changes held back, or had some moments ago: the
// problem must not come and go with them.
func (b *budget) problems(v *view) (all []v1alpha1.Problem) {
	for ref, l := range b.late {
		if _, ok := v.Known[ref]; !ok {
			continue
		}
		what := "problems change"
		if l.device != "" {
			what = fmt.Sprintf("devices change or come and go, such as %.64q,", l.device)
		}
		all = append(all, v1alpha1.Problem{Configuration: &ref, Reason: reasonHeldBack, Message: fmt.Sprintf(
			"%s too often, so that some are reported late: in the long run a node reports at most 60 changes "+
				"and %d KiB a minute. Have discovery find fewer devices, or leave out properties that change often",
			what, 60*rate>>10)})
	}
	return all
}

// bill is what changes cost: the slices that are written for them, and their Instances.
type bill struct {
	slices map[string]bool
	bytes  int
}

// cost is what the difference adds.
func (b *bill) cost(d *difference) int {
	n := max(d.bytes, writeCost)
	for _, w := range d.writes {
		if !b.slices[w.name] {
			n += max(w.bytes, writeCost)
		}
	}
	return n
}

func (b *bill) add(d *difference) {
	b.bytes += b.cost(d)
	if b.slices == nil {
		b.slices = map[string]bool{}
	}
	for _, w := range d.writes {
		b.slices[w.name] = true
	}
}
