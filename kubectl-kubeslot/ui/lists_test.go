package ui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// Of lists that may have tens of thousands a page gets what it shows, and how many there are.
func TestLongListsAreCut(t *testing.T) {
	now := time.Now()
	c := newCluster()
	o := &c.o
	node(o, "node-a")
	configuration(o, "cameras", 100, now.Add(-time.Hour))
	device(o, "cameras", "gate", 100, false, "node-a")
	for i := range 100 {
		holds(t, o, "default", fmt.Sprintf("p-%d", i), "node-a", "cameras", now.Add(-time.Hour),
			fmt.Sprintf("%s-%d", instanceOf("cameras", "gate", "node-a"), i))
	}
	configuration(o, "gpus", 1, now.Add(-time.Hour))
	for i := range 70 {
		device(o, "gpus", fmt.Sprint(i), 1, false, "node-a")
	}
	o.Pods = added(o.Pods, podOf("default", "waits", "cameras", 1, now.Add(-time.Minute)))
	address := servePage(t, c)
	origin, _, _ := strings.Cut(address, "/?")
	client := noFollow(t)
	get(t, client, address, nil)
	var pod struct {
		Waits []struct {
			Reason  string
			Held    int
			Holders []view.Slot
		}
	}
	_, body := get(t, client, origin+"/api/pods/default/waits", nil)
	if err := json.Unmarshal([]byte(body), &pod); err != nil {
		t.Fatal(err)
	}
	if len(pod.Waits) == 0 || pod.Waits[0].Reason != "SlotsHeld" || pod.Waits[0].Held != 100 ||
		len(pod.Waits[0].Holders) != listed {
		t.Errorf("the pod is %.600s", body)
	}
	var node struct {
		Reaches, Has int
		Instances    []view.Instance
		Slots        []view.Slot
	}
	_, body = get(t, client, origin+"/api/nodes/node-a", nil)
	if err := json.Unmarshal([]byte(body), &node); err != nil {
		t.Fatal(err)
	}
	if node.Reaches != 71 || node.Has != 100 || len(node.Instances) != listed || len(node.Slots) != listed {
		t.Errorf("%d of %d Instances, %d of %d slots of the node", len(node.Instances), node.Reaches,
			len(node.Slots), node.Has)
	}
}
