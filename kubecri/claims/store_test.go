package claims

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
)

// What was written is seen before the informer shows it, until it does.
func TestOwnWritesAreSeenAtOnce(t *testing.T) {
	name := mustSlot(t, "cam-a1-0")
	for _, test := range []struct {
		name string
		// happens are what we created or deleted, and what the informer showed or hid, by
		// the claim's UID.
		happens string
		node    string // here if empty
		want    types.UID
	}{
		{name: "nothing written", happens: "shown 1", want: "1"},
		{name: "another node's", happens: "shown 1", node: there},
		{name: "created", happens: "created 1", want: "1"},
		{name: "created, and deleted by another", happens: "created 1, shown 1, hidden 1"},
		{name: "created, and never shown: it went while nobody watched", happens: "created 1, minute 0"},
		{name: "deleted", happens: "shown 1, deleted 1"},
		{name: "deleted, and created by another", happens: "shown 1, deleted 1, hidden 1, shown 2", want: "2"},
		{name: "deleted and created", happens: "shown 1, deleted 1, created 2", want: "2"},
		{name: "deleted, created and deleted, and the informer is late", happens: "shown 1, deleted 1, created 2, deleted 2"},
		{name: "deleted, and shown again by an API server that was restored", happens: "shown 1, deleted 1, minute 0", want: "1"},
		{name: "deleted and created, and the informer is late", happens: "shown 1, deleted 1, created 2, hidden 1", want: "2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			s := newStore(here, nil, cache.NewIndexer(cache.MetaNamespaceKeyFunc, ByInstance), clock)
			for event := range strings.SplitSeq(test.happens, ", ") {
				what, uid, _ := strings.Cut(event, " ")
				claim := claimed(t, "cam-a1-0", "CL u1 "+cmp.Or(test.node, here))
				claim.UID = types.UID(uid)
				var err error
				switch what {
				case "created":
					s.own.Wrote(claim)
				case "deleted":
					s.own.Deleted(claim.Name, claim.UID)
				case "minute":
					clock.SetTime(clock.Now().Add(ownwrites.ShownWithin))
				case "shown":
					err = s.cached.Add(claim)
					s.saw(name, claim.UID)
				case "hidden":
					err = s.cached.Delete(claim)
					s.saw(name, claim.UID)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := s.get(name); (got != nil) != (test.want != "") || got != nil && got.UID != test.want {
				t.Errorf("got %v, want UID %q", got, test.want)
			}
			// What was written long ago is not remembered for ever.
			clock.SetTime(clock.Now().Add(ownwrites.ShownWithin))
			if after, ok := s.own.Forgets(); ok {
				t.Errorf("something is remembered for another %s after %s", after, ownwrites.ShownWithin)
			}
		})
	}
}
