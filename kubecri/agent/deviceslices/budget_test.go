package deviceslices

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// flooded is a node whose slices a budget decides about, in simulated time: a pass each second.
type flooded struct {
	*testing.T
	budget
	view
	now    time.Time
	counts counts // since the start
}

// counts are writes of slices, the bytes of these, and the Instances that the controller changes for them.
type counts struct{ writes, bytes, instances int }

func (c counts) since(before counts) counts {
	return counts{c.writes - before.writes, c.bytes - before.bytes, c.instances - before.instances}
}

var (
	cam = v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}
	mic = v1alpha1.ConfigurationReference{Namespace: "default", Name: "mic"}
)

var began = time.Unix(1000, 0)

func newFlooded(t *testing.T) *flooded {
	return &flooded{T: t, now: began, view: view{
		node: "node-a", owner: v1alpha1.NodeOwner("node-a", "u"),
		State: State{Complete: true, Known: map[v1alpha1.ConfigurationReference]Known{}}}}
}

// sees sets the devices of a Configuration, from their ids and the text of a property.
func (f *flooded) sees(ref v1alpha1.ConfigurationReference, devices map[string]string) {
	k := Known{MaxDevices: 1000, Standing: reports.Standing{Settled: true, Devices: map[string]reports.Device{}}}
	for id, text := range devices {
		hash := strings.ReplaceAll(id, " ", "-")
		k.Devices[hash] = reports.Device{Device: discovery.Device{ID: id, Properties: map[string]string{"TXT": text}},
			Hash: hash, Shared: true, Size: len(text) + 200}
	}
	f.Known[ref] = k
}

// pass is a second, at whose end the node writes.
func (f *flooded) pass() {
	f.Helper()
	f.now = f.now.Add(time.Second)
	v := f.view
	first, then, _ := f.budget.plan(&v, f.now)
	all := slices.Concat(first, then)
	for _, d := range differences(v.slices, all) {
		if d.key.hash != ofProblems {
			f.counts.instances++
		}
	}
	for _, c := range all {
		text, err := json.Marshal(c.slice)
		if err != nil {
			f.Fatal(err)
		}
		f.counts.writes++
		if !c.delete {
			f.counts.bytes += len(text)
		}
	}
	f.wrote(&v, all, f.now)
	f.slices = apply(f.slices, all...)
}

// calm has no news: the node writes when the budget says so, until nothing waits.
func (f *flooded) calm() {
	f.Helper()
	for f.pass(); !f.next.IsZero(); f.pass() {
		if f.now.Sub(began) > 24*time.Hour {
			f.Fatal("something waits without end")
		}
		f.now = f.next.Add(-time.Second)
	}
}

// written are the texts of the devices that the slices have, by id.
func (f *flooded) written(ref v1alpha1.ConfigurationReference) map[string]string {
	all := map[string]string{}
	for _, s := range f.slices {
		for _, d := range s.Spec.Devices {
			if d.Configuration == ref {
				all[d.ID] = d.Properties["TXT"]
			}
		}
	}
	return all
}

// problemsIn are the reasons and messages that the slices have.
func (f *flooded) problemsIn() (all []string) {
	for _, s := range f.slices {
		for _, p := range s.Spec.Problems {
			all = append(all, p.Reason+": "+p.Message)
		}
	}
	return all
}

// ids are n ids with a text each.
func ids(n int, prefix, text string) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("%s %04d", prefix, i)] = text
	}
	return all
}

// text is one of so many bytes.
func text(n int, what string) string { return what + strings.Repeat("x", n-len(what)) }

// Whatever a network does, a node writes a slice and changes an Instance once a second at most, and
// writes 1 MB a minute, in the long run. Once that has ended, all is written, and nothing is left to do.
func TestAFloodOfChangesIsBounded(t *testing.T) {
	kilobyte := text(1000, "")
	for name, c := range map[string]struct {
		minutes int // long enough to have spent the burst
		sees    func(second int) map[string]string
	}{
		"500 devices change": {10, func(second int) map[string]string {
			return ids(500, "printer", fmt.Sprint(second))
		}},
		"500 of 1 kB change": {10, func(second int) map[string]string {
			return ids(500, "printer", text(1000, fmt.Sprint(second)))
		}},
		"1,000 others of 1 kB": {10, func(second int) map[string]string {
			return ids(1000, fmt.Sprint("service ", second), kilobyte)
		}},
		"500 come and go": {10, func(second int) map[string]string {
			return ids(500*(second%2), "lamp", kilobyte)
		}},
		"one device changes": {10, func(second int) map[string]string {
			return ids(1, "printer", fmt.Sprint(second))
		}},
		"one after the other goes, and all come back": {30, func(second int) map[string]string {
			return ids(100-second%100, "lamp", kilobyte)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "500 of 1 kB change" && name != "one device changes" {
				t.Skip("takes half a minute with the race detector: make test-all")
			}
			f := newFlooded(t)
			var before counts // the last five minutes
			for second := range 60 * c.minutes {
				if second == 60*(c.minutes-5) {
					before = f.counts
				}
				f.sees(cam, c.sees(second))
				f.pass()
			}
			last := f.counts.since(before)
			t.Logf("in %d minutes %+v, in the last five %+v", c.minutes, f.counts, last)
			// What was gathered in the minute before may be among it.
			if last.writes > 6*60 || last.bytes > 6e6 || last.instances > 6*60 {
				t.Errorf("in five minutes %+v, want at most 360 writes, 6 MB and 360 Instances", last)
			}
			want := c.sees(60 * c.minutes)
			f.sees(cam, want)
			f.calm()
			if !maps.Equal(f.written(cam), want) || len(f.problemsIn()) > 0 {
				t.Errorf("not all is written: %v, %s", f.problemsIn(), cmp.Diff(want, f.written(cam)))
			}
			t.Logf("after it ended, all was written in %s", f.now.Sub(began)-time.Duration(c.minutes)*time.Minute)
		})
	}
}

// In the middle of a flood devices that are steady come and change, and all devices go, in the next pass.
func TestAFloodDelaysNoSteadyDevice(t *testing.T) {
	f := newFlooded(t)
	door := map[string]string{"door": "1"}
	f.sees(mic, door)
	seen := ids(500, "printer", "")
	seen["scanner"] = "1"
	for second := range 600 {
		maps.Copy(seen, ids(500, "printer", text(1000, fmt.Sprint(second))))
		switch second {
		case 301:
			seen["camera"] = "1" // of the Configuration that is flooded
		case 330:
			seen["scanner"] = "2"
		case 400:
			door["door"] = "2" // of another one
			f.sees(mic, door)
		case 500:
			delete(seen, "camera")
			delete(door, "door")
			f.sees(mic, door)
		}
		f.sees(cam, seen)
		f.pass()
		written := f.written(cam)
		if written["camera"] != seen["camera"] || written["scanner"] != seen["scanner"] {
			t.Fatalf("second %d: the camera is %q, the scanner %q, want %q and %q",
				second, written["camera"], written["scanner"], seen["camera"], seen["scanner"])
		}
		if written = f.written(mic); !maps.Equal(written, door) {
			t.Fatalf("second %d: %v is written, want %v", second, written, door)
		}
	}
	// 500 printers that go never wait.
	f.sees(cam, map[string]string{"scanner": "2"})
	if f.pass(); !maps.Equal(f.written(cam), map[string]string{"scanner": "2"}) {
		t.Errorf("%d devices are written after all but one went", len(f.written(cam)))
	}
}

// While others announce new names each second, a device that appears waits for its turn, whatever its id.
func TestNewNamesStarveNoDevice(t *testing.T) {
	f := newFlooded(t)
	for second := range 600 {
		seen := ids(1000, fmt.Sprintf("a%d-", second), "")
		if second >= 300 {
			seen["zoom"] = "1"
		}
		f.sees(cam, seen)
		f.pass()
		if f.written(cam)["zoom"] != "" {
			return
		}
	}
	t.Error("the device zoom is not written five minutes after it appeared")
}

// Whoever lowers spec.maxDevices in a flood does not wait for what was spent of the larger burst.
func TestALowerLimitIsNoDebt(t *testing.T) {
	v := &view{State: State{Known: map[v1alpha1.ConfigurationReference]Known{cam: {MaxDevices: 10}}}}
	for left, want := range map[float64]float64{1 << 20: 1 << 20, 64 << 20: v.burst(cam), -1 << 20: -1 << 20} {
		b := budget{accounts: map[v1alpha1.ConfigurationReference]*account{cam: {left: left, burst: 70 << 20}}}
		if got := b.left(v, cam); got != want {
			t.Errorf("of %.0f bytes %.0f are left, want %.0f", left, got, want)
		}
	}
}

// What discovery normally finds is written at once: 1,000 devices of 1 kB, which lose their network and come back.
func TestManyDevicesAreWrittenAtOnce(t *testing.T) {
	f := newFlooded(t)
	for _, n := range []int{1000, 0, 1000} {
		f.sees(cam, ids(n, "camera", text(1000, "")))
		if f.pass(); len(f.written(cam)) != n {
			t.Errorf("%d devices are written, want %d", len(f.written(cam)), n)
		}
		f.now = f.now.Add(2 * time.Minute)
	}
}

// A device that changes is written in each of the first passes, then after 2 s, 4 s and so on up to a minute;
// after two minutes without a change it begins anew.
func TestADeviceThatChangesAgainWaitsLonger(t *testing.T) {
	f := newFlooded(t)
	var written []int
	for second := range 200 {
		f.sees(cam, map[string]string{"printer": fmt.Sprint(second)})
		before := f.counts.writes
		if f.pass(); f.counts.writes > before {
			written = append(written, second)
		}
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67, 127, 187}, written); diff != "" {
		t.Errorf("written in these seconds (-want +got):\n%s", diff)
	}
	if f.calm(); f.written(cam)["printer"] != "199" || f.now.Sub(began) > 250*time.Second {
		t.Errorf("after %s the last change is not written: %v", f.now.Sub(began), f.written(cam))
	}
	f.now = f.now.Add(forgottenAfter)
	f.sees(cam, map[string]string{"printer": "new"})
	if f.pass(); f.written(cam)["printer"] != "new" {
		t.Error("a change after a while is not written at once")
	}
}

// A problem whose text changes each second is paced as a device is, and delays none.
func TestAFlappingProblemDelaysNoDevice(t *testing.T) {
	f := newFlooded(t)
	for second := range 600 {
		attempt := fmt.Sprint("attempt ", second)
		f.view.Problems = []v1alpha1.Problem{{Configuration: &cam, Reason: "DiscoveryFailed", Message: attempt}}
		seen := ids(second/10, "camera", "") // one more each ten seconds
		f.sees(cam, seen)
		if f.pass(); len(f.written(cam)) != len(seen) {
			t.Fatalf("second %d: %d devices are written, want %d", second, len(f.written(cam)), len(seen))
		}
	}
	if got := f.counts; got.writes > 90 { // 60 of devices, some of these with a problem
		t.Errorf("%+v, want few writes", got)
	}
	f.view.Problems = nil
	f.now = f.now.Add(maxWait)
	if f.pass(); len(f.problemsIn()) > 0 {
		t.Errorf("problems %v are left", f.problemsIn())
	}
}

// That changes wait is a problem, whose text stays the same; it ends when nothing has waited for a while.
func TestWhatWaitsIsReported(t *testing.T) {
	f := newFlooded(t)
	var seen []string
	for second := range 300 {
		f.sees(cam, ids(500, "printer", fmt.Sprint(second)))
		f.pass()
		if now := strings.Join(f.problemsIn(), ", "); len(seen) == 0 || seen[len(seen)-1] != now {
			seen = append(seen, now)
		}
	}
	const want = `DevicesChangeTooOften: devices change or come and go, such as "printer 0`
	if len(seen) != 2 || seen[0] != "" || !strings.HasPrefix(seen[1], want) {
		t.Errorf("problems in turn: %q", seen)
	}
	if f.calm(); len(f.problemsIn()) > 0 {
		t.Errorf("problems %q stay", f.problemsIn())
	}
}
