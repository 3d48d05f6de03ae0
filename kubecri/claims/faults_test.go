package claims

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

var (
	configurations = akriv0.SchemeGroupVersion.WithResource("configurations")
	nodes          = corev1.SchemeGroupVersion.WithResource("nodes")
	pods           = corev1.SchemeGroupVersion.WithResource("pods")
	errNoWord      = error(apierrors.NewTimeoutError("the server did not answer", 1))
)

// lost answers nothing to creates and deletes, which are done.
func lost(_ string, do func() error) error { return cmp.Or(do(), errNoWord) }

// A container is not created without all of its claims, and what was claimed for it
// is given back, whether or not the API server said that it was.
func TestTakeThatFailsLeavesNothing(t *testing.T) {
	for name, fault := range map[string]func(string, func() error) error{
		"API server away": away,
		"answers lost":    lost,
		"one answer lost": once(lost),
		"one not done":    once(away),
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, 2, nil)
			clock := clocktesting.NewFakeClock(time.Now())
			f := start(t, a, &fakeRuntime{}, setup{grace: time.Minute, clock: clock})
			a.set(fault)
			slots := []string{"cam", "cam-a1-0", "cam", "cam-a1-1"}
			_, err := f.Take(t.Context(), request(t, "u1", slots...))
			var refusal *Refusal
			if err == nil || errors.As(err, &refusal) {
				t.Fatalf("got %v, want an error that is no refusal", err)
			}
			a.set(nil)
			await.That(t, "the release", func() bool {
				clock.Step(time.Second) // of retries, and of the grace of what was not answered
				return a.who(t, "cam-a1-0")+a.who(t, "cam-a1-1") == ""
			})
			f.mustCreate(t, "c2", "u2", slots...)
		})
	}
}

// once is the fault of one call.
func once(fault func(string, func() error) error) func(string, func() error) error {
	calls := 0
	return func(verb string, do func() error) error {
		if calls++; calls == 1 {
			return fault(verb, do)
		}
		return do()
	}
}

// A create was done although it was not answered: the claim stays for the kubelet's
// next try, or until the pod is gone.
func TestAnUnansweredClaimIsThePods(t *testing.T) {
	for name, next := range map[string]func(*fixture, *kubefake.Clientset){
		"CL u1 node-a": func(f *fixture, _ *kubefake.Clientset) { f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0") },
		"": func(_ *fixture, client *kubefake.Clientset) {
			if err := client.Tracker().Delete(pods, "ns", "pod-u1"); err != nil {
				t.Error(err)
			}
		},
	} {
		client := kubefake.NewClientset(boundPod(t, "u1", "cam", "cam-a1-0"))
		a := newAPI(t, 1, nil)
		f := start(t, a, &fakeRuntime{}, setup{pods: client})
		a.set(lost)
		if _, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0")); err == nil {
			t.Fatal("no error")
		}
		a.set(nil)
		await.That(t, "the informer", func() bool { return f.store.get(mustSlot(t, "cam-a1-0")) != nil })
		f.still(t, "cam-a1-0", "CL u1 node-a")
		next(f, client)
		f.want(t, "cam-a1-0", name)
	}
}

func TestAClaimDeletedByHandIsMadeAgain(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{clock: clock})
	f.mustCreate(t, "c1", "u1", "cam-a1", "cam-a1-0")
	f.api.remove(t, "cam-a1-0")
	f.want(t, "cam-a1-0", "IL u1 node-a")
	f.still(t, "cam-a1-0", "IL u1 node-a")

	// Somebody deletes it each time: it is not made again all the time.
	uid := f.api.claim(t, "cam-a1-0").UID
	f.api.remove(t, "cam-a1-0")
	await.That(t, "the informer", func() bool {
		c := f.store.get(mustSlot(t, "cam-a1-0"))
		return c == nil || c.UID != uid
	})
	f.still(t, "cam-a1-0", "")
	clock.Step(remakeInterval)
	f.want(t, "cam-a1-0", "IL u1 node-a")
}

// A deletion that was not answered may be done later: the pod's next container gets another claim. One that
// the API server has not got, or has refused, leaves the claim as it is.
func TestADeletionThatWasNotAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		another bool
	}{
		"no answer": {errNoWord, true},
		"broken":    {fmt.Errorf("delete: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET}), true},
		"not sent":  {fmt.Errorf("delete: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), false},
		"refused":   {apierrors.NewTooManyRequests("later", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{})
			f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
			before, asked := f.api.claim(t, "cam-a1-0").UID, make(chan bool)
			first, taking := sync.OnceFunc(func() { close(asked) }), atomic.Bool{}
			f.api.set(func(verb string, do func() error) error {
				if verb == "delete" && !taking.Load() {
					first()
					return test.err
				}
				taking.Store(true) // the next container's create, and what follows
				return do()
			})
			f.remove("c1")
			<-asked
			f.mustCreate(t, "c2", "u1", "cam", "cam-a1-0")
			if now := f.api.claim(t, "cam-a1-0").UID; (now != before) != test.another {
				t.Errorf("claim %s after %s, want another: %t", now, before, test.another)
			}
		})
	}
}

// Nobody sees that it is missing while its container is being created.
func TestAClaimDeletedDuringACreateIsMadeAgain(t *testing.T) {
	f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{})
	taken, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0"))
	if err != nil {
		t.Fatal(err)
	}
	f.api.remove(t, "cam-a1-0")
	await.That(t, "the informer", func() bool { return f.store.get(mustSlot(t, "cam-a1-0")) == nil })
	f.still(t, "cam-a1-0", "")
	taken.Created("c1")
	f.want(t, "cam-a1-0", "CL u1 node-a")
}

// A container that is created while its pod's claim is on the way out gets another.
func TestTakeWaitsForARelease(t *testing.T) {
	f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	deleting, goesOn := make(chan bool), make(chan bool)
	f.api.set(func(verb string, do func() error) error {
		if verb == "delete" {
			close(deleting)
			<-goesOn
		}
		return do()
	})
	f.remove("c1")
	<-deleting
	took := make(chan int)
	go func() {
		defer close(took)
		if taken, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0")); err == nil {
			took <- len(taken.wrote)
		}
	}()
	select {
	case <-took:
		t.Error("a claim was taken that is being deleted")
	case <-time.After(50 * time.Millisecond):
	}
	close(goesOn)
	if n := <-took; n != 1 {
		t.Errorf("%d claims were created, want 1", n)
	}
}

// With a Node object, the garbage collector deletes its claims.
func TestClaimsAreMadeAgainForANodeThatIsAddedAgain(t *testing.T) {
	a := newAPI(t, 2, nil)
	f := start(t, a, &fakeRuntime{}, setup{})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0", "cam-a1", "cam-a1-1")
	if err := a.kube.Tracker().Delete(nodes, "", here); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the Node to be gone", func() bool { _, err := f.owner(); return err != nil })
	a.remove(t, "cam-a1-0")
	a.remove(t, "cam-a1-1")
	await.That(t, "the claims to be gone", func() bool { return len(f.store.names()) == 0 })
	f.still(t, "cam-a1-0", "")
	if err := a.kube.Tracker().Create(nodes, node(here, "uid-a2"), ""); err != nil {
		t.Fatal(err)
	}
	f.want(t, "cam-a1-0", "CL u1 node-a")
	f.want(t, "cam-a1-1", "IL u1 node-a")
	if got := a.claim(t, "cam-a1-0").OwnerReferences[0].UID; got != "uid-a2" {
		t.Errorf("the owner is %s", got)
	}
}

// The claim of a slot waits for its Configuration, too.
func TestAClaimIsMadeAgainWhenItsConfigurationComes(t *testing.T) {
	a := newAPI(t, 1, nil)
	cam, err := a.Tracker().Get(configurations, "default", "cam")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Tracker().Delete(configurations, "default", "cam"); err != nil {
		t.Fatal(err)
	}
	r := &fakeRuntime{}
	r.add(t, "c1", "u1", "cam", "cam-a1-0")
	f := start(t, a, r, setup{})
	f.still(t, "cam-a1-0", "")
	if err := a.Tracker().Create(configurations, cam, "default"); err != nil {
		t.Fatal(err)
	}
	f.want(t, "cam-a1-0", "CL u1 node-a")
}

// An older backup has claims that were released since, and lacks others, of which
// another node may have taken one.
func TestAPIServerRestoredFromAnOlderBackup(t *testing.T) {
	a := newAPI(t, 4, nil)
	clock := clocktesting.NewFakeClock(time.Now())
	f := start(t, a, &fakeRuntime{}, setup{grace: 20 * time.Second, clock: clock})
	f.mustCreate(t, "c0", "u0", "cam", "cam-a1-0")
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-1")
	f.mustCreate(t, "c2", "u2", "cam", "cam-a1-2")
	f.mustCreate(t, "c3", "u3", "cam-a1", "cam-a1-3")
	f.remove("c0")
	f.want(t, "cam-a1-0", "")

	a.set(away)
	a.put(t, "cam-a1-0", "CL u0 node-a")
	for slot, claim := range map[string]string{"cam-a1-1": "", "cam-a1-2": "CL u7 node-b", "cam-a1-3": "CL u8 node-a"} {
		a.remove(t, slot)
		if claim != "" {
			a.put(t, slot, claim)
		}
	}
	a.set(nil)
	f.Resync()
	f.want(t, "cam-a1-1", "CL u1 node-a")
	f.want(t, "cam-a1-3", "IL u3 node-a") // u8 has no container here
	f.wantEvent(t, "SlotLost", "cam-a1-2", "ns/pod-u7", there)
	f.still(t, "cam-a1-0", "CL u0 node-a")
	clock.Step(time.Minute)
	f.want(t, "cam-a1-0", "")
	f.still(t, "cam-a1-2", "CL u7 node-b")
	a.remove(t, "cam-a1-2") // the other pod is deleted
	f.Resync()
	f.want(t, "cam-a1-2", "CL u2 node-a")
	if len(f.events.Events) > 0 {
		t.Errorf("recorded again: %s", <-f.events.Events)
	}
}

// Whatever write a kill comes before or after, the next life finds from the runtime's
// containers what there is to do.
func TestKilledBetweenAnyTwoWrites(t *testing.T) {
	const writes = 7 // of a life that is not killed
	for n := range 2 * (writes + 1) {
		t.Run(fmt.Sprintf("%d writes, the last one answered: %t", n/2, n%2 == 0), func(t *testing.T) {
			a, r := newAPI(t, 3, map[string]string{"cam-b2-0": "CL u9 node-b"}), &fakeRuntime{}
			f := start(t, a, r, setup{})
			var dead atomic.Bool
			dead.Store(n < 2)
			a.set(func(verb string, do func() error) error {
				if dead.Load() {
					return errNoWord
				}
				if err := do(); err != nil || a.writes() < n/2 {
					return err
				}
				dead.Store(true)
				if n%2 == 1 {
					return errNoWord
				}
				return nil
			})
			released := func() {
				await.That(t, "the release", func() bool { return f.containers.pending() == 0 || dead.Load() })
			}
			f.create(t, "c1", "u1", "cam", "cam-a1-0", "cam", "cam-a1-1")
			f.create(t, "c2", "u2", "cam", "cam-a1-2")
			f.create(t, "c3", "u3", "cam", "cam-c3-0", "cam", "cam-b2-0") // which is refused
			released()
			f.remove("c2")
			released()
			f.create(t, "c4", "u4", "cam", "cam-a1-2")
			f.kill()

			if n/2 == writes && a.writes() != writes {
				t.Fatalf("%d writes in all, want %d", a.writes(), writes)
			}
			a.set(nil)
			clock := clocktesting.NewFakeClock(time.Now())
			f = start(t, a, r, setup{grace: time.Minute, clock: clock})
			want := map[string]string{"cam-a1-0": "", "cam-a1-1": "", "cam-a1-2": "", "cam-c3-0": "", "cam-b2-0": "CL u9 node-b"}
			for _, c := range r.containers {
				for key := range c.Annotations {
					want[strings.TrimPrefix(key, "akri.agent.slot-")] = "CL " + c.Labels["io.kubernetes.pod.uid"] + " node-a"
				}
			}
			for name, who := range want {
				await.That(t, "slot "+name+" to be "+who, func() bool {
					clock.Step(time.Second)
					return a.who(t, name) == who
				})
			}
		})
	}
}

// A pod that is deleted with --force is gone from the API server while its container
// runs on.
func TestAForceDeletedPodKeepsItsClaimUntilItsContainerIsGone(t *testing.T) {
	pod := boundPod(t, "u1", "cam", "cam-a1-0")
	client := kubefake.NewClientset(pod)
	clock := clocktesting.NewFakeClock(time.Now())
	f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{pods: client, clock: clock})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	if err := client.Tracker().Delete(pods, "ns", "pod-u1"); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the pod to be gone", func() bool { return len(f.entitlements(mustSlot(t, "cam-a1-0"))) == 0 })
	clock.Step(24 * time.Hour)
	f.still(t, "cam-a1-0", "CL u1 node-a")
	f.remove("c1")
	f.want(t, "cam-a1-0", "")
}

// The claims' owner has to be known. The kubelet tries again.
func TestNoClaimWithoutTheNodeObject(t *testing.T) {
	a := newAPI(t, 1, nil)
	a.kube = kubefake.NewClientset()
	f := start(t, a, &fakeRuntime{}, setup{})
	_, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0"))
	var refusal *Refusal
	if err == nil || errors.As(err, &refusal) || !strings.Contains(err.Error(), "no Node object") || a.writes() != 0 {
		t.Errorf("got %v after %d writes, want an error that is no refusal", err, a.writes())
	}
}
