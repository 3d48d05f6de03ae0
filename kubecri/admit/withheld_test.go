package admit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types/slot"
)

// What was logged once is not remembered for ever: Instances come and go.
func TestWithheldPropertiesAreRememberedWithinBounds(t *testing.T) {
	w := admittest.NewWorld(t, nil)
	a, err := New(Config{Node: node, Pods: w.Pods, Claims: w.Claims, DeviceTimeout: time.Second,
		Device: func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx := klog.NewContext(t.Context(), logger)
	grant := func(i int) inject.Grant {
		return inject.Grant{Slot: slot.Name{Instance: fmt.Sprintf("cam-%06x", i)}, Device: discovery.Device{Properties: map[string]string{"NOT": "x"}}}
	}
	for range 2 {
		a.logWithheld(ctx, grant(0))
	}
	if n := len(logger.GetSink().(ktesting.Underlier).GetBuffer().Data()); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	for i := range 2 * withheldLogged {
		a.logWithheld(t.Context(), grant(i))
	}
	if n := a.withheld.Len(); n > withheldLogged {
		t.Errorf("%d properties are remembered", n)
	}
}
