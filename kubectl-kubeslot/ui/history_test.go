package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// camera is a State of one device of three slots; taken is "index pod [Assigned|Missing]" each.
func camera(taken ...string) State {
	d := Device{Name: "cam", ID: "yard", Capacity: 3, Reach: "node/a"}
	for _, text := range taken {
		fields := strings.Fields(text)
		t := Taken{Index: int(text[0] - '0'), Pod: "ns/" + fields[1], State: view.Held, Node: "a"}
		if len(fields) > 2 {
			t.State = view.State(fields[2])
		}
		d.Taken = append(d.Taken, t)
	}
	return State{Devices: map[string]Device{"cam": d}}
}

func waiting(s State, pods ...string) State {
	for _, p := range pods {
		s.Pods = append(s.Pods, Pod{Namespace: "ns", Name: p, State: "Pending"})
	}
	return s
}

func starting(s State, pod string) State {
	s.Pods = append(s.Pods, Pod{Namespace: "ns", Name: pod, State: "Starting"})
	return s
}

func TestChanges(t *testing.T) {
	unreached := camera("0 p")
	d := unreached.Devices["cam"]
	d.Reach = ""
	unreached.Devices["cam"] = d
	for name, tc := range map[string]struct {
		from, to State
		want     []string
	}{
		"nothing":                         {camera("0 p"), camera("0 p"), nil},
		"a slot is assigned":              {camera(), camera("0 p Assigned"), []string{"Assigned 0 ns/p"}},
		"its container runs without it":   {camera("0 p Assigned"), camera("0 p Missing"), []string{"Missing 0 ns/p"}},
		"then held":                       {camera("0 p Assigned"), camera("0 p"), []string{"Held 0 ns/p"}},
		"then released":                   {camera("0 p", "1 q"), camera("1 q"), []string{"Released 0 ns/p"}},
		"from one pod to the next":        {camera("0 p"), camera("0 q"), []string{"Released 0 ns/p", "Held 0 ns/q"}},
		"a device is found":               {State{}, camera("2 p"), []string{"Found 0 ", "Held 2 ns/p"}},
		"a device goes, and its slots":    {camera("2 p"), State{}, []string{"Gone 0 ", "Released 2 ns/p"}},
		"no node reaches it":              {camera("0 p"), unreached, []string{"Lost 0 "}},
		"a node reaches it again":         {unreached, camera("0 p"), []string{"Reached 0 "}},
		"a pod waits":                     {camera(), waiting(camera(), "p"), []string{"Waits 0 ns/p"}},
		"a pod that waited has a slot":    {waiting(camera(), "p", "q"), waiting(camera("0 p"), "q"), []string{"Placed 0 ns/p", "Held 0 ns/p"}},
		"it has a node, and starts":       {waiting(camera(), "p"), starting(camera("0 p Assigned"), "p"), []string{"Placed 0 ns/p", "Assigned 0 ns/p"}},
		"a pod that waited is gone":       {waiting(camera(), "p"), camera(), []string{"Left 0 ns/p"}},
		"a slot beyond the capacity goes": {camera("9 p"), camera(), []string{"Released 9 ns/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range changes(&tc.from, &tc.to, 1) {
				got = append(got, fmt.Sprintf("%s %d %s", e.Kind, e.Slot, e.Pod))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// An hour's history: what was before the first state, what came after, what is too old.
func TestHistory(t *testing.T) {
	first := waiting(camera("0 p", "1 old"), "w")
	first.Devices["cam"].Taken[0].Since = noon.Add(-20 * time.Minute).Unix()
	first.Devices["cam"].Taken[1].Since = noon.Add(-3 * time.Hour).Unix()
	first.Pods[0].Since = noon.Add(-5 * time.Minute).Unix()
	// A pod that had slot 2 from 11:10 to 11:30, and is still there.
	done := assigned(t, podOf("ns", "done", "cam", 1, noon), "a", "cam", noon.Add(-50*time.Minute), "cam-2")
	done.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(noon.Add(-50 * time.Minute)), FinishedAt: metav1.NewTime(noon.Add(-30 * time.Minute))}}}}}
	var h History
	h.Begin(&first, []corev1.Pod{done}, noon)

	minute := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04") }
	points := func() []string {
		var got []string
		for _, p := range h.points {
			got = append(got, fmt.Sprintf("%s %d held %d assigned %d waiting of %d", minute(p.Time), p.Held, p.Assigned, p.Waiting, p.Total))
		}
		return got
	}
	if diff := cmp.Diff([]string{"11:00 1 held 0 assigned 0 waiting of 3", "11:10 2 held 0 assigned 0 waiting of 3", "11:30 1 held 0 assigned 0 waiting of 3",
		"11:40 2 held 0 assigned 0 waiting of 3", "11:55 2 held 0 assigned 1 waiting of 3", "12:00 2 held 0 assigned 1 waiting of 3"}, points()); diff != "" {
		t.Errorf("points at the beginning (-want +got):\n%s", diff)
	}

	second := camera("0 p", "1 old", "2 w Assigned")
	third := camera("1 old", "2 w")
	for _, s := range []*State{&second, &third} { // as they are in a real State
		for i := range s.Devices["cam"].Taken {
			s.Devices["cam"].Taken[i].Since = noon.Add(-3 * time.Hour).Unix()
		}
	}
	h.Record(&first, &second, noon.Add(10*time.Minute))
	events, _ := h.Record(&second, &third, noon.Add(20*time.Minute))
	if len(events) != 2 {
		t.Errorf("the second change has the events %+v, want two", events)
	}
	spans := func(at time.Time) []string {
		d := third.Devices["cam"]
		var got []string
		for _, s := range h.Spans(&d, at) {
			end := "now"
			if s.To != 0 {
				end = minute(s.To)
			}
			got = append(got, fmt.Sprintf("%d %s %s %s-%s", s.Slot, s.Pod, s.State, minute(s.From), end))
		}
		return got
	}
	if diff := cmp.Diff([]string{"0 ns/p Held 11:40-12:20", "1 ns/old Held 11:20-now", "2 ns/done Held 11:20-11:30", "2 ns/w Assigned 12:10-12:20", "2 ns/w Held 12:20-now"},
		spans(noon.Add(20*time.Minute))); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	// An hour later only the last change is left, and what lasts.
	h.Record(&third, &third, noon.Add(75*time.Minute))
	if diff := cmp.Diff([]string{"0 ns/p Held 12:15-12:20", "1 ns/old Held 12:15-now", "2 ns/w Held 12:20-now"}, spans(noon.Add(75*time.Minute))); diff != "" {
		t.Errorf("spans an hour later (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"12:10 2 held 1 assigned 0 waiting of 3", "12:20 2 held 0 assigned 0 waiting of 3"}, points()); diff != "" {
		t.Errorf("points an hour later (-want +got):\n%s", diff)
	}
}

// A node's clock may be ahead: nothing happens after now.
func TestHistoryOfAFastClock(t *testing.T) {
	first := camera()
	done := assigned(t, podOf("ns", "done", "cam", 1, noon), "a", "cam", noon.Add(-50*time.Minute), "cam-2")
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		StartedAt: metav1.NewTime(noon.Add(-10 * time.Minute)), FinishedAt: metav1.NewTime(noon.Add(30 * time.Minute))}}
	done.Status = corev1.PodStatus{Phase: corev1.PodSucceeded,
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: ended}}}
	var h History
	h.Begin(&first, []corev1.Pod{done}, noon)
	h.Record(&first, &first, noon.Add(time.Minute))
	last := int64(0)
	for _, p := range h.points {
		if p.Time < last || p.Time > noon.Add(time.Minute).UnixMilli() {
			t.Errorf("points %+v are not in order, or after now", h.points)
		}
		last = p.Time
	}
	if e := h.events[len(h.events)-1]; e.Kind != SlotReleased || e.Time != noon.UnixMilli() {
		t.Errorf("the last event is %+v", e)
	}
}

// A cluster that changes more than fits is remembered for less than an hour, and the
// page is told since when.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	a, b := camera(), camera("0 p", "1 q", "2 r")
	h.Begin(&a, nil, noon)
	now := noon
	for range maxEvents/6 + 100 {
		now = now.Add(100 * time.Millisecond)
		h.Record(&a, &b, now)
		now = now.Add(100 * time.Millisecond)
		h.Record(&b, &a, now)
	}
	if len(h.events) > maxEvents {
		t.Errorf("%d events are kept, want at most %d", len(h.events), maxEvents)
	}
	if h.recorded <= noon.UnixMilli() || h.recorded != h.events[0].Time {
		t.Errorf("it says that it has all since %d, and its first event is of %d", h.recorded, h.events[0].Time)
	}
	if most := int(window/resolution) + 2; len(h.points) > most {
		t.Errorf("%d points are kept, want at most %d", len(h.points), most)
	}
}
