package command

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// output collects what is written, for a reader beside the writer.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until the output is this: a watch that has failed for a while is tried again after half a minute.
func (o *output) await(t *testing.T, want string) {
	t.Helper()
	await.That(t, "the output", func() (bool, string) {
		got := o.String()
		return got == want, "(-want +got)\n" + cmp.Diff(want, got)
	})
}

// watching runs a command that goes on until the test ends.
func watching(t *testing.T, o *options, line string) *output {
	t.Helper()
	t.Setenv("KUBECONFIG", "/nonexistent")
	out := &output{}
	o.streams.Out, o.streams.ErrOut = out, out
	root := newRoot(o)
	root.SetArgs(strings.Fields(line))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s ended with %v, want no error when it is interrupted", line, err)
		}
	})
	return out
}

var yardClaim = &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cam-" + slot.InstanceHash("yard", true, "", 6) + "-0", CreationTimestamp: long},
	Spec: v1alpha1.SlotClaimSpec{NodeName: "a", Container: "main", Level: "CL", Holder: "u", Pod: &v1alpha1.PodReference{Namespace: "default", Name: "viewer", UID: "u"}}}

// watchStory has one camera of two slots.
func watchStory(t *testing.T) *story {
	s := newStory()
	s.set("configuration/cam", &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "c", CreationTimestamp: long},
		Spec: akriv0.ConfigurationSpec{Capacity: 2, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "onvif"}}})
	s.set("node/a", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: "yard", Shared: true, Hash: slot.InstanceHash("yard", true, "", 6)}
	slice := s.slice("a")
	slice.Spec.Devices = []v1alpha1.Device{d}
	s.set("instance/cam", &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: d.Instance()}, Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 2, Shared: true, Nodes: []string{"a"}}})
	return s
}

func TestWatch(t *testing.T) {
	s := watchStory(t)
	kube, akri, _ := s.clients()
	o, _, _ := s.options("")
	o.connected = source.For(kube, akri, nil, nil, "default")
	out := watching(t, o, "slots --watch")
	const first = `SLOT           STATE   HOLDER   CONTAINER   NODE   LEVEL   SINCE
cam-f30c78-0   Free    -        -           -      -       -
cam-f30c78-1   Free    -        -           -      -       -
`
	out.await(t, first)
	claims := akri.KubeslotV1alpha1().SlotClaims()
	if _, err := claims.Create(context.Background(), yardClaim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const held = first + `cam-f30c78-0   Held    default/viewer   main        a      CL      60m
`
	out.await(t, held)
	if err := claims.Delete(context.Background(), yardClaim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	const freed = held + `cam-f30c78-0   Free    -                -           -      -       -
`
	out.await(t, freed)
	// What changes nothing of the rows is not shown: the next line is the Instance's end.
	pods := kube.CoreV1().Pods("default")
	if _, err := pods.Create(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", UID: types.UID("o")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := akri.AkriV0().Instances("default").Delete(context.Background(), "cam-f30c78", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	out.await(t, freed+`cam-f30c78-0   Free    -                -           -      -       -
cam-f30c78-1   Free    -                -           -      -       -
`)
}

func TestWatchEvents(t *testing.T) {
	for line, want := range map[string][2]string{
		"slots --watch-only --output-watch-events": {"", `EVENT      SLOT           STATE   HOLDER           CONTAINER   NODE   LEVEL   SINCE
MODIFIED   cam-f30c78-0   Held    default/viewer   main        a      CL      60m
`},
		"slots -w -o name --held": {"", "slot.kubectl.kubeslot.io/cam-f30c78-0\n"},
		"slots -w --held --output-watch-events -o jsonpath={.type},{.object.metadata.name},{.object.pod}": {"", "ADDED,cam-f30c78-0,viewer"},
		"list -w --no-headers": {"cam   onvif   true   1     1     2     2     0     0     0     -\n",
			"cam   onvif   true   1     1     2     1     0     1     0     -\n"},
	} {
		t.Run(line, func(t *testing.T) {
			s := watchStory(t)
			kube, akri, _ := s.clients()
			o, _, _ := s.options("")
			ready := make(chan struct{})
			o.connected = source.For(kube, akri, nil, nil, "default")
			o.watched = func() { close(ready) }
			out := watching(t, o, line)
			await.Next(t, "the command to begin to watch", ready)
			out.await(t, want[0])
			if _, err := akri.KubeslotV1alpha1().SlotClaims().Create(context.Background(), yardClaim, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			out.await(t, want[0]+want[1])
		})
	}
}

// A user is told when what he sees is out of date, once, and when it is no longer.
func TestWatchSaysWhenItIsOutOfDate(t *testing.T) {
	s := watchStory(t)
	kube, akri, _ := s.clients()
	o, _, _ := s.options("")
	var down atomic.Bool
	broken := make(chan *watch.RaceFreeFakeWatcher, 10)
	kube.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		if down.Load() {
			return true, nil, apierrors.NewUnauthorized("the token has expired\x1b[2J")
		}
		w := watch.NewRaceFreeFake()
		broken <- w
		return true, w, nil
	})
	ready := make(chan struct{})
	o.connected = source.For(kube, akri, nil, nil, "default")
	o.watched = func() { close(ready) }
	out := watching(t, o, "slots --watch-only --no-headers")
	<-ready
	down.Store(true)
	(<-broken).Stop()
	const outdated = "Out of date: nodes: the token has expired?[2J\n"
	out.await(t, outdated)
	if _, err := akri.KubeslotV1alpha1().SlotClaims().Create(context.Background(), yardClaim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const held = outdated + "cam-f30c78-0   Held   default/viewer   main   a     CL    60m\n"
	out.await(t, held)
	down.Store(false)
	out.await(t, held+"Up to date again.\n")
}

// What a device or a pod's author wrote moves no cursor and breaks no line.
func TestWhatIsPrintedIsPlain(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := newOptions(streams)
	rows := []string{"a\x1b[2Jb", "c\nd", "\u202egnp.exe", "é"}
	err := printRows(o, "Text", rows, []column[string]{{"TEXT", wordColumn, func(s *string) string { return *s }}, {"ALSO", wordColumn, func(s *string) string { return "x" }}}, "")
	if want := "TEXT      ALSO\na?[2Jb    x\nc?d       x\n?gnp.exe   x\né         x\n"; err != nil || strings.ReplaceAll(out.String(), " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("it prints %q, %v; want %q", out.String(), err, want)
	}
}

// slow has each view take a second.
type slow struct{ *testclock.FakeClock }

func (slow) Since(time.Time) time.Duration { return time.Second }

func (s slow) After(d time.Duration) <-chan time.Time {
	if d == 0 { // as a real clock, and unlike the fake one
		now := make(chan time.Time)
		close(now)
		return now
	}
	return s.FakeClock.After(d)
}

// After a view that takes a second a feed rests for four.
func TestFeedRests(t *testing.T) {
	kube, akri, _ := watchStory(t).clients()
	from := source.For(kube, akri, nil, nil, "default")
	ctx, cancel := context.WithCancel(t.Context())
	live, err := from.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	fake := testclock.NewFakeClock(time.Unix(0, 0))
	f := &liveFeed{ctx: ctx, from: from, live: live, clock: slow{fake}}
	if _, more := f.next(); !more || f.rest != 4*time.Second {
		t.Errorf("more news %t, a rest of %s", more, f.rest)
	}
	ended := make(chan struct{})
	go func() {
		f.next()
		close(ended)
	}()
	await.That(t, "it to rest", fake.HasWaiters)
	if fake.Step(4*time.Second - 1); !fake.HasWaiters() {
		t.Error("it rests for less than four seconds")
	}
	if fake.Step(1); fake.HasWaiters() {
		t.Error("it rests for more than four seconds")
	}
	cancel()
	<-ended
}
