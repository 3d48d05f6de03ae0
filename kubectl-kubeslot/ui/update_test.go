package ui

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// applied is what a page has after an update; what page/model.js does.
func applied(u Update, to State) State {
	if u.Full {
		to = State{}
	}
	devices := map[string]Device{}
	for name, d := range to.Devices {
		devices[name] = d
	}
	for _, d := range u.Devices {
		devices[d.Name] = d
	}
	for _, name := range u.Gone {
		delete(devices, name)
	}
	to.Devices = devices
	if u.Reach != nil {
		to.Reach = u.Reach
	}
	if u.Configurations != nil {
		to.Configurations = u.Configurations
	}
	if u.Nodes != nil {
		to.Nodes = u.Nodes
	}
	if u.Pods != nil {
		to.Pods = u.Pods
	}
	if u.Problems != nil {
		to.Problems = u.Problems
	}
	if u.Missing != nil {
		to.Missing = u.Missing
	}
	if u.Error != nil {
		to.Error = *u.Error
	}
	return to
}

// states draws States of few names, so that two of them have much in common.
func states() *rapid.Generator[State] {
	return rapid.Custom(func(t *rapid.T) State {
		s := State{Devices: map[string]Device{}, Reach: map[string][]string{}, Error: rapid.SampledFrom([]string{"", "refused"}).Draw(t, "error")}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID).Draw(t, "devices") {
			d := Device{Name: name, Capacity: rapid.IntRange(1, 3).Draw(t, "capacity"), Reach: rapid.SampledFrom([]string{"", "node/x", "node/y"}).Draw(t, "reach"),
				Label: rapid.SampledFrom([]string{"", "HD Webcam"}).Draw(t, "label")}
			for i := range d.Capacity {
				if pod := rapid.SampledFrom([]string{"", "ns/p", "ns/q"}).Draw(t, "pod"); pod != "" {
					d.Taken = append(d.Taken, Taken{Index: i, Pod: pod, State: rapid.SampledFrom([]view.State{view.Held, view.Assigned}).Draw(t, "state")})
				}
			}
			s.Devices[name] = d
			if d.Reach != "" {
				s.Reach[d.Reach] = []string{d.Reach[5:]}
			}
		}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"p", "q"}), rapid.ID).Draw(t, "pods") {
			s.Pods = append(s.Pods, Pod{Namespace: "ns", Name: name, State: "Pending"})
		}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"x", "y"}), rapid.ID).Draw(t, "nodes") {
			s.Nodes = append(s.Nodes, Node{Name: name})
		}
		return s
	})
}

// A page that applies each update has what the server has, also when the updates went
// through JSON, which tells "as it was" from "empty".
func TestUpdatesLeadToTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(states(), 2, 4).Draw(t, "states")
		page := applied(sent(t, full(&all[0])), State{Pods: []Pod{{Name: "of an earlier connection"}}})
		for i := range all {
			if i > 0 {
				u, differ := difference(&all[i-1], &all[i])
				if same := cmp.Equal(all[i-1], all[i]); differ == same {
					t.Fatalf("difference says %v of states that are equal: %v", differ, same)
				}
				page = applied(sent(t, u), page)
			}
			if diff := cmp.Diff(normal(all[i]), normal(page)); diff != "" {
				t.Fatalf("after update %d (-the server's +the page's):\n%s", i, diff)
			}
		}
	})
}

// normal has no empty slices.
func normal(s State) State {
	if len(s.Pods) == 0 {
		s.Pods = nil
	}
	if len(s.Nodes) == 0 {
		s.Nodes = nil
	}
	if len(s.Configurations) == 0 {
		s.Configurations = nil
	}
	if len(s.Problems) == 0 {
		s.Problems = nil
	}
	if len(s.Missing) == 0 {
		s.Missing = nil
	}
	return s
}

func sent(t *rapid.T, u Update) Update {
	text, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	var got Update
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestNewState(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	c := small(t, now)
	s := NewState(view.New(c.o), c.o, nil, nil, now)
	gate, own := instanceOf("cameras", "gate", ""), instanceOf("gpus", "GPU-0", "node-a")
	want := Device{Name: gate, Namespace: "default", Configuration: "cameras", ID: "gate", Shared: true, Capacity: 3, Reach: reachKey([]string{"node-a", "node-b"}),
		Taken: []Taken{
			{Index: 0, State: view.Held, Pod: "default/viewer-1", Container: "main", Node: "node-a", Level: "CL", Since: now.Add(-40 * time.Minute).Unix()},
			{Index: 1, State: view.Held, Pod: "team-b/viewer-2", Container: "main", Node: "node-b", Level: "CL", Since: now.Add(-12 * time.Minute).Unix()}}}
	if diff := cmp.Diff(want, s.Devices[gate]); diff != "" {
		t.Errorf("the camera (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"node-a", "node-b"}, s.Reach[s.Devices[gate].Reach]); diff != "" {
		t.Errorf("nodes that reach the camera (-want +got):\n%s", diff)
	}
	if got := s.Devices[own]; got.Reach != "node/node-a" || len(got.Taken) != 1 || got.Taken[0].State != view.Assigned {
		t.Errorf("the GPU is %+v", got)
	}
	var pods []string
	for _, p := range s.Pods {
		pods = append(pods, p.Name+" "+p.State)
	}
	if diff := cmp.Diff([]string{"waits Pending", "starts Starting"}, pods); diff != "" {
		t.Errorf("pods, longest wait first (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Ask{{"cameras", 3}}, s.Pods[0].Asks); diff != "" {
		t.Errorf("what the pod asks for (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Node{{"node-a", true, 3}, {"node-b", true, 1}}, s.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if len(s.Problems) != 0 {
		t.Errorf("problems of a cluster in order: %+v", s.Problems)
	}
}
