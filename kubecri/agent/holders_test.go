package agent

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery"
)

// Pods on every node that reaches a device are told when it is another, and when it is
// gone; that another node reports it now is no news.
func TestHoldersOfWhatOthersDiscoverAreNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, 1, "n1", "n2")
		all := func(url string, n int) {
			result := &discovery.Result{Shared: true}
			for range n {
				result.Devices = append(result.Devices, discovery.Device{ID: "foo0", Properties: map[string]string{"URL": url}})
			}
			for _, h := range s.handlers {
				h.change(func() { h.result = result })
			}
		}
		all("rtsp://a", 1)
		pass(noticeInterval)
		for _, n := range s.nodes {
			n.mu.Lock()
			n.notifications = nil
			n.mu.Unlock()
		}
		all("rtsp://b", 1)
		for _, name := range []string{"n1", "n2"} {
			s.nodes[name].wantNotified(t, "cam-8120fe DeviceChanged The device of Instance cam-8120fe has changed on node "+name+": property URL. ")
		}
		holder := s.discover()[0]
		s.nodes[holder].stop()
		pass(time.Minute)
		delete(s.nodes, holder)
		delete(s.nodes, "node-x")
		for _, n := range s.nodes {
			n.wantNotified(t)
		}
		// The other node's slice stays while that is away.
		if err := s.KubeslotV1alpha1().DeviceSlices().Delete(t.Context(), holder+"-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, n := range s.nodes {
			n.wantNotified(t)
		}
		all("", 0)
		for _, n := range s.nodes {
			n.wantNotified(t, "cam-8120fe DeviceGone")
		}
	})
}
