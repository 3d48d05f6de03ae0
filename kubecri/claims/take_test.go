package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/kubeslot/kubeslot/test/await"
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

// Slots of which a part is claimed when the time is over, or the API server does not answer, are claimed further when
// the kubelet tries again; none is given back meanwhile.
func TestTakeGoesOn(t *testing.T) {
	const slots, first = 20, 8
	a := newAPI(t, slots, nil)
	var all []string
	for i := range slots {
		all = append(all, "cam", fmt.Sprint("cam-8120fe-", i))
	}
	f := start(t, a, &fakeRuntime{}, setup{pods: kubefake.NewClientset(boundPod(t, "u1", all...))})
	created := 0
	for try := range 3 {
		a.set(func(verb string, do func() error) error {
			switch {
			case verb == "delete":
				t.Error("a claim is given back")
			case verb == "create" && created == min(first*(try+1), slots):
				return errNoWord // and it is not done
			case verb == "create":
				created++
			}
			return do()
		})
		err := f.create(t, "c1", "u1", all...)
		if try == 2 && err != nil || try < 2 && !errors.Is(err, errNoWord) {
			t.Errorf("try %d: %v", try, err)
		}
		await.That(t, "what is to be released", func() bool { return f.containers.pending() == 0 })
	}
	if created != slots {
		t.Errorf("%d claims were created for %d slots", created, slots)
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
