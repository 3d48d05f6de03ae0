package informers

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// resync is what factories have for the period of a resync, which nobody asks for.
type resync = time.Duration

// listed is read by a list before it is watched.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go is told so.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// streamed is read and watched by one request. The first one takes what the API server's
// cache has; client-go alone would ask for what is current. After an error client-go decides.
func streamed(from *cache.ListWatch, client any) cache.ListerWatcher {
	current, begun := from.WatchFuncWithContext, atomic.Bool{}
	from.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		initial := options.SendInitialEvents != nil && *options.SendInitialEvents
		if initial && !begun.Swap(true) && options.ResourceVersion == "" {
			options.ResourceVersion = "0"
		}
		return current(ctx, options)
	}
	return cache.ToListWatcherWithWatchListSemantics(from, client)
}
