package agent

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A device counts as gone only once its handler has had the chance to report it.
func TestDevicesAndThoseThatAreGone(t *testing.T) {
	c := configuration("cam", 1)
	c.Spec.BrokerProperties = map[string]string{"URL": "rtsp"}
	handler := silent()
	node := newAPI(c).start(t, "node-a", handler)
	if node.Gone("cam-8120fe") {
		t.Error("a device is gone before the first report")
	}
	eventually(t, "Gone()", func() error {
		if !node.Gone("garage-8120fe") {
			return fmt.Errorf("the device of a Configuration that does not exist is not gone")
		}
		return nil
	})
	_, changed := node.Devices()
	handler.see("foo0")
	for {
		<-changed
		devices, again := node.Devices()
		if changed = again; len(devices) == 0 {
			continue
		}
		if diff := cmp.Diff(map[string]string{"ID": "foo0", "URL": "rtsp"}, devices["cam-8120fe"].Properties); diff != "" {
			t.Errorf("properties (-want +got):\n%s", diff)
		}
		break
	}
	if node.Gone("cam-8120fe") || !node.Gone("cam-a19705") {
		t.Errorf("gone: %t and %t, want only the device that was not reported", node.Gone("cam-8120fe"), node.Gone("cam-a19705"))
	}
	handler.see()
	for !node.Gone("cam-8120fe") {
		_, changed = node.Devices()
		if node.Gone("cam-8120fe") {
			break
		}
		<-changed
	}
}
