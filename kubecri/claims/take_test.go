package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// A container's slots are claimed in parallel: none of the creates is answered before
// all have been sent.
func TestTakeInParallel(t *testing.T) {
	const slots = workers
	a := newAPI(t, slots, nil)
	var sent atomic.Int32
	all := make(chan struct{})
	a.creating = func(ctx context.Context) error {
		if sent.Add(1) == slots {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return errors.New("the other claims were not created meanwhile")
		}
	}
	f := start(t, a, &fakeRuntime{}, setup{})
	var want []string
	for i := range slots {
		want = append(want, "cam", fmt.Sprint("cam-8120fe-", i))
	}
	f.mustCreate(t, "c1", "u1", want...)
	for i := 1; i < len(want); i += 2 {
		f.want(t, want[i], "CL u1 "+here)
	}
}

// While a backup may have been restored, a slot without a claim may be in use elsewhere: no new one is
// taken. What the pod has is known.
func TestTakeWaitsForObjections(t *testing.T) {
	a := newAPI(t, 2, nil)
	f := start(t, a, &fakeRuntime{}, setup{})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	f.config.Believable = func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("restored from a backup")
	}
	f.mustCreate(t, "c2", "u1", "cam", "cam-a1-0")
	err := f.create(t, "c3", "u2", "cam", "cam-a1-1")
	if err == nil || !strings.Contains(err.Error(), "cam-a1-1") || !strings.Contains(err.Error(), "restored from a backup") || a.who(t, "cam-a1-1") != "" {
		t.Errorf("%v, want the slot not to be taken", err)
	}
}
