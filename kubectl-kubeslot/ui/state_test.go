package ui

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/discovery/usb"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// The problems that every user sees are said as doctor says them.
func TestProblemsAreSaidAsDoctorSaysThem(t *testing.T) {
	now := time.Now()
	c := small(t, now)
	c.o.Instances[0].Status.Problems = []string{"its lens is broken"}
	c.o.Configurations[0].Status.Problems = append(c.o.Configurations[0].Status.Problems, problem("no route"))
	c.o.Slices[0].Spec.Devices[0].Unschedulable = true // its handler does not answer
	notReady(&c.o, "node-b")
	c.o.Pods = without(c.o.Pods, func(p *corev1.Pod) bool { return p.Name == "viewer-2" })
	v := view.New(c.o)
	all := NewState(v, c.o, nil, nil, now).Problems
	own := slices.DeleteFunc(slices.Clone(all), func(f view.Finding) bool {
		return !slices.Contains([]string{"InstanceProblem", "ConfigurationProblem", "NodeUnreachable", "HandlerDown"},
			f.Reason)
	})
	if len(own) != 4 {
		t.Fatalf("of the four problems these are found: %+v", all)
	}
	some := NewState(v, c.o, []string{"configurations.akri.sh of other namespaces"}, nil, now).Problems
	if diff := cmp.Diff(own, some); diff != "" {
		t.Errorf("to a user who may not list all they are said otherwise (-doctor +page):\n%s", diff)
	}
}

// A device is known by its model and serial number, whatever it says of itself.
func TestLabel(t *testing.T) {
	long := strings.Repeat("é", 300)
	for name, tc := range map[string]struct {
		properties map[string]string
		want       string
	}{
		"nothing":               {nil, ""},
		"other properties":      {map[string]string{"UDEV_DEVNODE": "/dev/video0"}, ""},
		"model and serial":      {map[string]string{usb.ModelProperty: "HD Webcam", usb.SerialProperty: "F00D"}, "HD Webcam F00D"},
		"udev's names":          {map[string]string{"ID_MODEL": "HD_Webcam", "ID_SERIAL_SHORT": "F00D"}, "HD_Webcam F00D"},
		"a model alone":         {map[string]string{usb.ModelProperty: "HD Webcam"}, "HD Webcam 046d:082d@1-2"}, // two of them are told apart
		"a serial number alone": {map[string]string{usb.SerialProperty: "F00D"}, ""},
		"long ones": {map[string]string{usb.ModelProperty: long, usb.SerialProperty: "0" + long + "9"},
			strings.Repeat("é", 20) + "…" + strings.Repeat("é", 19) + " 0" + strings.Repeat("é", 19) + "…" + strings.Repeat("é", 18) + "9"},
	} {
		if got := label("046d:082d@1-2", tc.properties); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
