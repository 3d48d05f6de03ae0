package claims

import (
	"context"
	"sync"
)

// Locks are locks by key. The zero value has none that is held. Safe for concurrent use.
type Locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]chan struct{}
}

// Lock waits until the caller alone has the lock of the key. It returns ctx's error when that ends first.
func (l *Locks[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	for {
		l.mu.Lock()
		other, taken := l.held[key]
		if !taken {
			if l.held == nil {
				l.held = map[K]chan struct{}{}
			}
			done := make(chan struct{})
			l.held[key] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.held, key)
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
