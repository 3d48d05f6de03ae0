package allocator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
)

// rig has the Configuration cam, and a ledger that says which Instances are held.
type rig struct {
	t      *testing.T
	client *fake.Clientset
	mu     sync.Mutex
	held   []string
	leads  bool
}

// set changes which Instances are held, and whether the scheduler leads.
func (r *rig) set(leads bool, held ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.leads = held, leads
}

func newRig(t *testing.T, allocator akriv0.Allocator, now *akriv0.AllocatorStatus) *rig {
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", ResourceVersion: "7"}}
	c.Spec.Allocator, c.Status.Allocator = allocator, now
	c.Status.Nodes = 3
	return &rig{t: t, client: fake.NewSimpleClientset(c), leads: true}
}

func (r *rig) run(ctx context.Context) {
	w := &Writer{Client: r.client, Handovers: func() []ledger.Handover {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.leads {
			return nil
		}
		return []ledger.Handover{{Configuration: r.configuration(), Held: r.held}}
	}}
	go w.Run(ctx)
}

func (r *rig) configuration() *akriv0.Configuration {
	c, err := r.client.AkriV0().Configurations("default").Get(context.Background(), "cam", metav1.GetOptions{})
	if err != nil {
		panic(err)
	}
	return c
}

func (r *rig) patches() (all []string) {
	for _, a := range r.client.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && a.GetSubresource() == "status" {
			all = append(all, string(p.GetPatch()))
		}
	}
	return all
}

// The status follows from the spec and from what the other allocator holds. What is right already is not
// written, and nothing else of the status is touched.
func TestStatus(t *testing.T) {
	dra := func(held ...string) *akriv0.AllocatorStatus {
		return akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, held)
	}
	slots := func(held ...string) *akriv0.AllocatorStatus {
		return akriv0.NewAllocatorStatus(akriv0.AllocatorSlots, held)
	}
	var many []string
	for i := range 250 {
		many = append(many, fmt.Sprintf("cam-%06d", i))
	}
	for name, test := range map[string]struct {
		allocator akriv0.Allocator
		now       *akriv0.AllocatorStatus
		held      []string
		want      *akriv0.AllocatorStatus
		writes    int
	}{
		"slots as ever":           {"", nil, nil, nil, 0},
		"to DRA":                  {akriv0.AllocatorDRA, nil, []string{"cam-1"}, dra("cam-1"), 1},
		"to DRA, nothing held":    {akriv0.AllocatorDRA, nil, nil, dra(), 1},
		"to DRA, much held":       {akriv0.AllocatorDRA, nil, many, dra(many...), 1},
		"one ends":                {akriv0.AllocatorDRA, dra("cam-1", "cam-2"), []string{"cam-2"}, dra("cam-2"), 1},
		"the last one ends":       {akriv0.AllocatorDRA, dra("cam-1"), nil, dra(), 1},
		"DRA has all":             {akriv0.AllocatorDRA, dra(), nil, dra(), 0},
		"to slots":                {"", dra(), []string{"cam-1"}, slots("cam-1"), 1},
		"to slots, DRA has none":  {"", dra("cam-1"), nil, nil, 1},
		"DRA's last one ends":     {akriv0.AllocatorSlots, slots("cam-1"), nil, nil, 1},
		"a slice that comes late": {"", nil, []string{"cam-1"}, slots("cam-1"), 1},
		"DRA again, midway":       {akriv0.AllocatorDRA, slots("cam-1"), nil, dra(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, test.allocator, test.now)
				r.set(true, test.held...)
				r.run(t.Context())
				time.Sleep(6 * period)
				c := r.configuration()
				if got := c.Status.Allocator; !reflect.DeepEqual(got, test.want) {
					t.Errorf("status.allocator is %+v, want %+v", got, test.want)
				}
				if c.Status.Nodes != 3 || c.Spec.Allocator != test.allocator {
					t.Errorf("something else was changed: %+v", c)
				}
				if got := r.patches(); len(got) != test.writes {
					t.Errorf("written %d times, want %d: %v", len(got), test.writes, got)
				}
			})
		})
	}
}

// Whatever changes, there is at most one write a second; and the last change is written.
func TestWritesOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, akriv0.AllocatorDRA, nil)
		r.run(t.Context())
		for i := range 100 {
			r.set(true, fmt.Sprintf("cam-%06d", i))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(period)
		if n := len(r.patches()); n < 4 || n > 6 {
			t.Errorf("%d writes in 5 s", n)
		}
		if got := r.configuration().Status.Allocator.Held; !reflect.DeepEqual(got, r.held) {
			t.Errorf("held are %v, want %v", got, r.held)
		}
	})
}

// A write that fails is tried again, later and later, and with what is right by then. It is for the
// Configuration as it was when that was decided.
func TestTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, akriv0.AllocatorDRA, nil)
		err := apierrors.NewConflict(schema.GroupResource{Resource: "configurations"}, "cam", errors.New("changed"))
		var fails atomic.Bool
		fails.Store(true)
		r.client.PrependReactor("patch", "configurations", func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails.Load(), nil, err
		})
		r.set(true, "cam-1")
		r.run(t.Context())
		time.Sleep(10 * time.Second)
		if n := len(r.patches()); n < 3 || n > 5 {
			t.Errorf("%d attempts in 10 s", n)
		}
		r.set(true, "cam-2")
		fails.Store(false)
		time.Sleep(maxRetry)
		if got := r.configuration().Status.Allocator; got == nil || !reflect.DeepEqual(got.Held, r.held) {
			t.Errorf("status.allocator is %+v", got)
		}
		const want = `{"metadata":{"resourceVersion":"7"},"status":{"allocator":` +
			`{"current":"DRA","held":["cam-1"],"heldCount":1}}}`
		if got := r.patches()[0]; got != want {
			t.Errorf("patch %s, want %s", got, want)
		}
	})
}

// Only the scheduler that leads writes, from when it does; one that is killed writes no more, and the next one
// goes on.
func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, akriv0.AllocatorDRA, nil)
		r.set(false)
		killed, kill := context.WithCancel(t.Context())
		r.run(killed)
		time.Sleep(10 * period)
		if got := r.patches(); len(got) > 0 {
			t.Errorf("a scheduler that does not lead writes %v", got)
		}
		r.set(true)
		time.Sleep(2 * period)
		if len(r.patches()) != 1 {
			t.Errorf("the new leader writes %v", r.patches())
		}

		kill()
		r.set(true, "cam-1")
		time.Sleep(2 * period)
		if len(r.patches()) != 1 {
			t.Errorf("a killed scheduler writes: %v", r.patches())
		}
		r.run(t.Context())
		time.Sleep(2 * period)
		if got := r.configuration().Status.Allocator; !reflect.DeepEqual(got.Held, r.held) {
			t.Errorf("held are %v", got.Held)
		}
	})
}
