package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
)

// usbMachine is the /sys, /dev and /run/udev of a machine with a recorded Zigbee stick:
// the kernels that this has to run on may have no USB. In place of the stick's device
// nodes are ones that can be opened, as /dev/zero.
func (r *rig) usbMachine() *sysfstest.Machine {
	r.Helper()
	m := sysfstest.New(r)
	for _, name := range []string{"controller", "zigbee"} {
		text, err := os.ReadFile(filepath.Join(shared.Config().RepoRoot, "discovery/usb/testdata", name+".umockdev"))
		r.check(err)
		m.Add(r, string(text))
	}
	for _, node := range []string{"ttyUSB2", "bus/usb/001/007"} {
		path := filepath.Join(m.Tree.Dev, node)
		r.check(os.Remove(path))
		r.check(syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|5))
	}
	return m
}

// usbFlags point a handler, or a kubecri, at the machine.
func usbFlags(m *sysfstest.Machine) []string {
	return []string{"--sysfs=" + m.Tree.Sys, "--udev-data=" + m.Tree.UdevData, "--dev=" + m.Tree.Dev}
}

// A pod has the stick under the path that the Configuration gives it, whatever number
// the kernel has.
func TestUSB(t *testing.T) {
	testAll(t, "restarts kubecri")
	r := newRig(t)
	m := r.usbMachine()
	r.check(shared.SetKubecriArgs(r.ctx, nodeA, append(usbFlags(m), "--handler-allowed-paths=usb="+m.Tree.Dev)...))
	t.Cleanup(func() { r.check(shared.SetKubecriArgs(context.Background(), nodeA)) })
	r.zigbeeStick(nodeA)
}

func (r *rig) zigbeeStick(node string) {
	r.Helper()
	r.discover("zigbee", "usb", 1, `{devices: [{vendor: "10c4", product: "ea60"}], containerPath: /dev/zigbee}`)
	in := r.awaitInstance("zigbee", node)
	r.create(newPod("zigbee", "", map[string]int64{"zigbee": 1}))
	r.agree("zigbee", "zigbee", 1)
	if got := strings.TrimSpace(r.exec("zigbee", "read", "/dev/zigbee", "4")); got != "00000000" {
		r.Errorf("read from /dev/zigbee: %q", got)
	}
	if env := r.env("zigbee"); env["USB_VENDOR"] != "10c4" || env["USB_SERIAL"] != "0001" {
		r.Errorf("environment %v, properties of the Instance %v", env, in.Spec.BrokerProperties)
	}
}
