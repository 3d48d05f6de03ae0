package admit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
)

// A container that is created with devices is a line of the log, at the default verbosity,
// with its slots and what their handler calls the devices.
func TestInjectionIsLogged(t *testing.T) {
	w := admittest.NewWorld(t, nil)
	a, err := admit.New(admit.Config{Node: admittest.Node, Pods: w.Pods, Claims: w.Claims, DeviceTimeout: time.Second,
		Device: func(context.Context, string) (discovery.Device, error) {
			return discovery.Device{ID: "/dev/video0"}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx := klog.NewContext(t.Context(), logger)
	admission, err := a.Admit(ctx, container(admittest.Good))
	if err != nil {
		t.Fatal(err)
	}
	admission.Created(ctx, "c1")
	log := ""
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		log += fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)
	}
	if want := "Injected devices containerID c1 slots [cam-a1-0] devices [/dev/video0]\n"; !strings.Contains(log, want) {
		t.Errorf("the log lacks %q:\n%s", want, log)
	}
}
