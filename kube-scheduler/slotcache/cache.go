package slotcache

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/types/client/restored"
)

// Cache owns the ledger. It is safe for concurrent use. Its methods named after an object of
// the API (SetPod, DeleteNode, …) are for who follows those; see Start.
type Cache struct {
	// Queue has the unbound pods by the resource names that they ask for.
	Queue *requeue.Queue[*Waiting]

	logger  klog.Logger
	clock   clock.WithDelayedExecution
	sources []cache.InformerSynced
	// late is closed when pods wait for the sources no longer: see GiveUpWaiting.
	late   chan struct{}
	giveUp sync.Once
	// guard notices that a backup was restored; nil where nothing feeds the cache.
	guard *restored.Guard

	// kinds are the names of Configurations that give slots. The framework's hints read it without mu.
	kinds sync.Map
	// choosing are the names of the nodes that choose slots themselves. Reserve and Bind read it
	// without mu.
	choosing sync.Map

	mu     sync.RWMutex
	ledger *ledger.Ledger
	// believableFrom is when new claims may be written: see Believable.
	believableFrom time.Time
	// leftOut is what was last logged of a DeviceSlice's devices that are left out.
	leftOut map[string]string
	// snapshot is of the nodes as the scheduler's last snapshot had them.
	snapshot *snapshot
	// profiles are the scheduler names whose pods this process schedules, with their
	// arguments.
	profiles map[string]*config.ConfigurationResourcesArgs
	// nominations are of waiting pods, by UID.
	nominations map[string]*Nomination
	// unclaimed are pods on nodes that choose slots themselves, by UID.
	unclaimed      map[string]*unclaimed
	unclaimedSoFar int
	leads          bool
	// handovers are as of the last time that they were asked for; changed is set when the ledger has changed since.
	handovers []ledger.Handover
	changed   atomic.Bool
}

// Read calls f with the ledger, which f must neither change nor keep.
func (b *Cache) Read(f func(*ledger.Ledger)) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	f(b.ledger)
}

// AddProfile makes the pods of the scheduler's name this process's, with their arguments.
func (b *Cache) AddProfile(name string, args *config.ConfigurationResourcesArgs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.profiles[name] = args
}

// Lead records that this scheduler leads.
func (b *Cache) Lead() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads = true
}

// DoubleAllocations are those that this scheduler has to resolve: none unless it leads, and none
// before the SlotClaims are known, which say who keeps a slot.
func (b *Cache) DoubleAllocations() []*ledger.DoubleAllocation {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.leads || !b.Synced() {
		return nil
	}
	return b.ledger.DoubleAllocations()
}

// Handovers are those that this scheduler has to write, which DoubleAllocations would not hold back. One goroutine
// may call it at a time.
func (b *Cache) Handovers() []ledger.Handover {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.leads || !b.Synced() {
		return nil
	}
	if b.changed.Swap(false) {
		b.handovers = b.ledger.Handovers()
	}
	return b.handovers
}

// Synced reports whether the ledger has seen all that existed at start.
func (b *Cache) Synced() bool {
	for _, synced := range b.sources {
		if !synced() {
			return false
		}
	}
	return true
}
