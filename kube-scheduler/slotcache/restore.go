package slotcache

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/restored"
)

// settleTimeout bounds what a bind waits to know whether a backup was restored; the pod is tried again.
const settleTimeout = 30 * time.Second

// endWhenRestored ends the process when the API server was restored from a backup: the
// ledger, and the framework's caches of pods and nodes, hold what is no longer so.
func (b *Cache) endWhenRestored(ctx context.Context, client versioned.Interface, caches []restored.Cache) {
	if err := b.guard.Run(ctx, client.Discovery().RESTClient(), caches...); err != nil {
		b.logger.Error(err, "Ending")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// AwaitObjectionsFor has Believable wait for so long from now. A scheduler keeps nothing on disk that
// would tell it whether the process before it has noticed a restore, nor does one know that is started
// during the outage. So each process takes it that there was one.
func (b *Cache) AwaitObjectionsFor(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.believableFrom = b.clock.Now().Add(d)
}

// Believable waits until a slot is free that the API server has no claim of: until nodes have had time
// to make again the claims that a restored backup does not know.
func (b *Cache) Believable(ctx context.Context) error {
	b.mu.RLock()
	from := b.believableFrom
	b.mu.RUnlock()
	if err := restored.AwaitObjections(ctx, from); err != nil {
		return err
	}
	if b.guard == nil { // nothing feeds the cache
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return b.guard.Settled(ctx)
}
