package claims

import (
	"context"
	"errors"
	"fmt"
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
