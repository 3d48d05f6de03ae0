package history

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	podinfo "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestCheck runs the histories in testdata. A line is one event:
//
//	configuration NAME capacity=N                as it is from now on
//	slice NODE [ID[=HASH] ...]                   the node's one slice, of shared devices of cam
//	claim SLOT POD NODE [by-name]                a new SlotClaim, through a CL request, or an IL one
//	edit SLOT POD NODE                           the spec of the SlotClaim becomes this
//	release SLOT
//	bind POD NODE [SLOT ...] [by-name]           bound with slots, through CL requests, or IL ones
//	create POD NODE                              bound by somebody, with a request and no assignment
//	show POD running|done|deleted|moved|preempted
//
// The events are handed over in random order.
func TestCheck(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "history" {
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			}
			events := read(t, d.Input)
			rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			r := Check(events, Rules{Doubles: d.HasArg("doubles")})
			out := fmt.Sprintf("bound %d, claims %d, doubles %d", r.Bound, r.Claims, r.Doubles)
			if r.Preempted > 0 {
				out += fmt.Sprintf(", preempted %d", r.Preempted)
			}
			return strings.Join(append([]string{out}, r.Violations...), "\n")
		})
	})
}

func read(t *testing.T, input string) []Event {
	var events []Event
	pods, claims := map[string]*v1.Pod{}, map[string]*v1alpha1.SlotClaim{}
	for i, line := range strings.Split(strings.TrimSpace(input), "\n") {
		words := strings.Fields(line)
		version := strconv.Itoa(i + 1)
		kind, name, rest := words[0], words[1], words[2:]
		e := Event{Type: watch.Modified}
		switch kind {
		case "configuration":
			capacity, err := strconv.Atoi(strings.TrimPrefix(rest[0], "capacity="))
			if err != nil {
				t.Fatal(err)
			}
			e.Configuration = &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: akriv0.ConfigurationSpec{Capacity: int32(capacity)}}
		case "slice":
			e.Slice = &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: name}}
			for _, w := range rest {
				id, hash, given := strings.Cut(w, "=")
				if !given {
					hash = slot.InstanceHash(id, true, name, slot.ShortHash)
				}
				e.Slice.Spec.Devices = append(e.Slice.Spec.Devices, v1alpha1.Device{
					Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: id, Hash: hash, Shared: true})
			}
		case "claim", "edit":
			c := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(version)},
				Spec: v1alpha1.SlotClaimSpec{Holder: rest[0], NodeName: rest[1], Level: v1alpha1.ConfigurationLevel}}
			if slices.Contains(rest, "by-name") {
				c.Spec.Level = v1alpha1.InstanceLevel
			}
			if kind == "claim" {
				e.Type = watch.Added
			} else {
				c.UID = claims[name].UID
			}
			e.Claim, claims[name] = c, c
		case "release":
			e.Type, e.Claim = watch.Deleted, claims[name].DeepCopy()
		case "bind", "create":
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{NodeName: rest[0],
				Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"akri.sh/cam": resource.MustParse("1")}}}}}}
			if kind == "bind" {
				p.Annotations = assigned(t, p, rest[1:])
			}
			pods[name] = p
		case "show":
			p := pods[name].DeepCopy()
			status := v1.ContainerStatus{Name: "main"}
			switch rest[0] {
			case "running":
				status.State.Running = &v1.ContainerStateRunning{}
			case "done":
				p.Status.Phase = v1.PodSucceeded
			case "deleted":
				e.Type = watch.Deleted
			case "preempted":
				status.State.Running = &v1.ContainerStateRunning{}
				p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}}
			case "moved":
				p.Annotations = assigned(t, p, []string{"cam-8120fe-9"})
			}
			p.Status.ContainerStatuses = []v1.ContainerStatus{status}
			pods[name] = p
		default:
			t.Fatalf("unknown event %q", line)
		}
		if e.object() == nil {
			e.Pod = pods[name].DeepCopy()
		}
		e.object().SetResourceVersion(version)
		events = append(events, e)
	}
	return events
}

func assigned(t *testing.T, p *v1.Pod, slots []string) map[string]string {
	byName := slices.Contains(slots, "by-name")
	var grants []assignment.Grant
	for _, s := range slots {
		if s == "by-name" {
			continue
		}
		name, err := slot.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		g := assignment.Grant{Resource: "cam", Ordinal: len(grants), Slot: name}
		if byName {
			g.Resource, g.Ordinal = name.Instance, 0
		}
		grants = append(grants, g)
	}
	c := podinfo.ContainerInfo{}
	assignment.Set(&c, grants)
	notes, err := assignment.Encode(&podinfo.PodInfo{Name: p.Name, NodeName: p.Spec.NodeName,
		RunningContainers: map[string]podinfo.ContainerInfo{"main": c}}, string(p.UID), nil)
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

func TestIncompleteHistory(t *testing.T) {
	r := Check([]Event{{Type: watch.Added, Pod: &v1.Pod{}}}, Rules{})
	if len(r.Violations) != 1 || !strings.Contains(r.Violations[0], "not complete") {
		t.Errorf("%v", r.Violations)
	}
}

func TestCaughtUp(t *testing.T) {
	pod := func(kind watch.EventType, uid types.UID, version string) Event {
		return Event{Type: kind, Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}}
	}
	events := []Event{pod(watch.Added, "a", "3"), pod(watch.Added, "b", "4"), pod(watch.Modified, "a", "7"), pod(watch.Deleted, "b", "8")}
	for name, test := range map[string]struct {
		there map[types.UID]string
		asOf  uint64
		want  bool
	}{
		"as it is":            {map[types.UID]string{"a": "7"}, 8, true},
		"an older version":    {map[types.UID]string{"a": "3"}, 3, true},
		"a newer version":     {map[types.UID]string{"a": "9"}, 9, false},
		"one not yet seen":    {map[types.UID]string{"a": "7", "c": "9"}, 9, false},
		"one not yet seen go": {map[types.UID]string{}, 9, false},
		"one made since":      {map[types.UID]string{}, 2, true},
	} {
		if got := caughtUp(events, test.there, test.asOf); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
