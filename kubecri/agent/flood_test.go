package agent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery"
)

// 500 devices that change each second cost the API server little, and once they are steady all is
// written, though nobody wakes the writer.
func TestAFloodOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), silent()
		api.start(t, "node-a", handler)
		flood := func(seconds int) {
			for second := range seconds {
				result := &discovery.Result{Shared: true}
				for _, id := range many(500) {
					properties := map[string]string{"TXT": fmt.Sprint(second)}
					result.Devices = append(result.Devices, discovery.Device{ID: id, Properties: properties})
				}
				handler.change(func() { handler.result = result })
				pass(time.Second)
			}
		}
		flood(150) // spends the burst
		api.called()
		flood(120)
		if writes := len(api.called()); writes > 120 {
			t.Errorf("%d writes in two minutes", writes)
		}
		stale, problems := func() (n int) {
			for _, s := range api.slices(t) {
				for _, d := range s.Spec.Devices {
					if d.Properties["TXT"] != "119" {
						n++
					}
				}
			}
			return n
		}, func() string { return fmt.Sprint(api.slices(t)[0].Spec.Problems) }
		if stale() == 0 || !strings.Contains(problems(), "DevicesChangeTooOften") {
			t.Errorf("%d devices wait, with the problems %s", stale(), problems())
		}
		pass(15 * time.Minute)
		if stale() > 0 || problems() != "[]" {
			t.Errorf("a quarter of an hour later %d devices wait, with the problems %s", stale(), problems())
		}
		api.called()
		pass(time.Hour)
		api.wantCalls(t)
	})
}

// While changes wait and the Node object is gone, the writer waits for the Node's event: in simulated
// time a writer that looked again and again would never let a second pass.
func TestChangesWaitForTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), silent()
		api.start(t, "node-a", handler)
		for second := range 200 {
			result := &discovery.Result{Shared: true}
			for _, id := range many(500) {
				properties := map[string]string{"TXT": fmt.Sprint(second)}
				result.Devices = append(result.Devices, discovery.Device{ID: id, Properties: properties})
			}
			handler.change(func() { handler.result = result })
			pass(time.Second)
		}
		nodes := api.kube.CoreV1().Nodes()
		if err := nodes.Delete(t.Context(), "node-a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		api.called()
		pass(time.Hour)
		api.wantCalls(t)
		if _, err := nodes.Create(t.Context(), node("node-a"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if len(api.called()) == 0 {
			t.Error("nothing is written when the Node is back")
		}
	})
}
