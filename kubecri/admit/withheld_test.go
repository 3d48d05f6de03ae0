package admit

import (
	"fmt"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/lru"

	"github.com/kubeslot/kubeslot/discovery"
)

// What was logged once is not remembered for ever: Instances come and go.
func TestWithheldPropertiesAreRememberedWithinBounds(t *testing.T) {
	a := &Admitter{withheld: lru.New(withheldLogged)}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx := klog.NewContext(t.Context(), logger)
	device := discovery.Device{Properties: map[string]string{"NOT": "x"}, Variables: map[string]bool{}}
	for range 2 {
		a.logWithheld(ctx, "cam-000000", device)
	}
	if n := len(logger.GetSink().(ktesting.Underlier).GetBuffer().Data()); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	for i := range 2 * withheldLogged {
		a.logWithheld(t.Context(), fmt.Sprintf("cam-%06x", i), device)
	}
	if n := a.withheld.Len(); n > withheldLogged {
		t.Errorf("%d properties are remembered", n)
	}
}
