package soplugins

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// The wait for a plugin that is busy and the call itself have one deadline together: the
// timeout, or the caller's own where that is sooner.
func TestOneDeadlineForWaitAndCall(t *testing.T) {
	for name, test := range map[string]struct{ callers, want time.Duration }{
		"the timeout":      {time.Hour, 10 * time.Second},
		"the caller's":     {8 * time.Second, 8 * time.Second},
		"while it is busy": {5 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, release, ended := newCaller("p", nil, 10*time.Second, nil), make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = call(context.Background(), c, methodAllocate, func(device.Device) (int, error) {
						time.Sleep(6 * time.Second)
						return 0, nil
					})
				}()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(context.Background(), test.callers)
				defer cancel()
				start := time.Now()
				_, fault := call(ctx, c, methodAllocate, func(device.Device) (int, error) { <-release; return 0, nil })
				if took := time.Since(start); fault == nil || took != test.want {
					t.Errorf("took %s, want %s: %v", took, test.want, fault)
				}
				close(release)
				<-ended
			})
		})
	}
}

// A pod that needs a plugin that could not be loaded is refused with the file and why.
func TestRefusalNamesWhatIsNotLoaded(t *testing.T) {
	p, err := New(Config{Node: "node-a", NotLoaded: []string{"plugin gpu.so is not a shared object"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Allocate(t.Context(), &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {
		AllocateFrom: types.ResourceLocation{"alpha/grp/gpu/0/cards": "alpha/grp/gpu/G0/cards"}}}}, "main")
	if !errors.Is(err, ErrNoPlugin) || !strings.Contains(err.Error(), "plugin gpu.so is not a shared object") {
		t.Error(err)
	}
}
