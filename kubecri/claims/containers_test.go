package claims

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Whatever containers come and go, also while the runtime is being asked, the
// containers that exist in live sandboxes are known, and a slot that lost its last
// one is freed.
func TestWhatIsKnownFollowsTheContainers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := newContainers()
		type container struct{ id, sandbox, pod, slot string }
		runtime := map[string]container{} // the truth
		stopped := map[string]bool{}
		next := 0
		userOf := func(c container, id string) *user {
			s, err := slot.Parse(c.slot)
			if err != nil {
				t.Fatal(err)
			}
			return &user{id: id, sandbox: c.sandbox, pod: Pod{UID: c.pod}, name: c.id,
				slots: map[slot.Name]Use{s: {"CL", c.pod}}}
		}
		list := func() []*user {
			var users []*user
			for _, c := range runtime {
				if !stopped[c.sandbox] {
					users = append(users, userOf(c, c.id))
				}
			}
			return users
		}
		pick := func(label string, ids []string) string {
			slices.Sort(ids)
			return rapid.SampledFrom(ids).Draw(t, label)
		}
		event := func(behindOurBack bool) {
			switch rapid.SampledFrom([]string{"create", "create", "fail", "remove", "stop"}).Draw(t, "event") {
			case "create":
				// A pod has a slot of its own, and a sandbox at a time.
				pod := rapid.SampledFrom([]string{"p0", "p1", "p2"}).Draw(t, "pod")
				sandbox := rapid.SampledFrom([]string{pod + "-a", pod + "-b"}).Draw(t, "sandbox")
				if stopped[sandbox] {
					return
				}
				next++
				c := container{id: fmt.Sprintf("c%d", next), sandbox: sandbox, pod: pod, slot: "cam-" + pod + "-0"}
				if behindOurBack {
					runtime[c.id] = c
					return
				}
				u := userOf(c, "")
				if err := known.begin(u); err != nil {
					t.Fatalf("begin: %v", err)
				}
				runtime[c.id] = c
				known.created(u, c.id)
			case "fail":
				u := userOf(container{pod: "p0", sandbox: "p0-a", slot: "cam-p0-0"}, "")
				if !behindOurBack && known.begin(u) == nil {
					known.failed(u, slices.Collect(maps.Keys(u.slots)))
				}
			case "remove":
				if len(runtime) > 0 {
					id := pick("container", slices.Collect(maps.Keys(runtime)))
					delete(runtime, id)
					if !behindOurBack {
						known.remove(id)
					}
				}
			case "stop":
				id := pick("stopped", []string{"p0-a", "p1-a", "p2-a"})
				stopped[id] = true
				if !behindOurBack {
					known.remove(id)
				}
			}
		}
		for range rapid.IntRange(0, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 3).Draw(t, "before") {
				event(rapid.Bool().Draw(t, "behind"))
			}
			since := known.startSync()
			for range rapid.IntRange(0, 2).Draw(t, "during1") {
				event(false)
			}
			listed := list()
			for range rapid.IntRange(0, 2).Draw(t, "during2") {
				event(false)
			}
			known.finishSync(since, listed)

			want, wantSlots := map[string]bool{}, map[string]bool{}
			for _, u := range list() {
				want[u.id] = true
				for s := range u.slots {
					wantSlots[s.String()] = true
				}
			}
			got, gotSlots := map[string]bool{}, map[string]bool{}
			for u := range known.users {
				got[u.id] = true
				for s := range u.slots {
					gotSlots[s.String()] = true
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("containers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantSlots, gotSlots); diff != "" {
				t.Fatalf("slots (-want +got):\n%s", diff)
			}
			for s := range known.freed {
				if len(known.bySlot[s]) > 0 {
					t.Fatalf("slot %s is freed and used", s)
				}
			}
			if len(known.byID) != len(known.users) {
				t.Fatalf("%d ids of %d containers", len(known.byID), len(known.users))
			}
		}
	})
}
