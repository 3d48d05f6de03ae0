package deviceplugins

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/wake"
)

// A plugin that failed is asked again after minRetry, then after twice that, up to
// maxRetry.
const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// trouble counts and logs what goes wrong in plugins, and has it retried.
type trouble struct {
	logger klog.Logger
	happen wake.Signal // has an entry after a fault
	logged sync.Map    // of *rate.Sometimes, by plugin, method and kind
}

func newTrouble(logger klog.Logger) *trouble {
	return &trouble{logger: logger, happen: wake.New()}
}

// fault is host.Options.OnFault.
func (t *trouble) fault(f *host.Fault) {
	faults.WithLabelValues(f.Plugin, f.Method, string(f.Kind)).Inc()
	t.happen.Send()
	// A call for each node and pod fails alike.
	sometimes, _ := t.logged.LoadOrStore([3]string{f.Plugin, f.Method, string(f.Kind)}, &rate.Sometimes{First: 3, Interval: 10 * time.Second})
	sometimes.(*rate.Sometimes).Do(func() {
		values := []any{"plugin", f.Plugin, "method", f.Method, "kind", f.Kind, "node", f.Node, "pod", f.Pod}
		var panicked *contain.PanicError
		if errors.As(f.Err, &panicked) {
			values = append(values, "stack", string(panicked.Stack))
		}
		t.logger.Error(f.Err, "A device scheduler plugin failed", values...)
	})
}

// retry asks plugins again that failed, and has the pods tried again that were
// refused for it, until ctx is done.
func (a *deviceCache) retry(ctx context.Context, c clock.Clock) {
	delay, last := minRetry, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.trouble.happen:
		}
		if c.Since(last) > 2*delay { // it went well for a while
			delay = minRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-c.After(delay):
		}
		select { // what went wrong so far is what is retried now
		case <-a.trouble.happen:
		default:
		}
		last = c.Now()
		if a.again() {
			delay = minRetry
		} else {
			delay = min(2*delay, maxRetry)
		}
	}
}

// again asks once more, and reports whether nothing is wrong any longer.
func (a *deviceCache) again() bool {
	err := a.host.Retry()
	faulted := a.retryFaulted()
	return err == nil && faulted == 0
}

// retryFaulted has the pods tried that a plugin could not answer for, and returns how many.
func (a *deviceCache) retryFaulted() int {
	return a.queue.RetryWaiting(nil, func(_ *v1.Pod, w *waiting) bool { return w.faulted.Load() })
}
