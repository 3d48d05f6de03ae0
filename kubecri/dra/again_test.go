package dra

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func (a *api) remove(t *testing.T, name string) {
	t.Helper()
	claims := a.KubeslotV1alpha1().SlotClaims()
	c, err := claims.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}}
	if err := claims.Delete(t.Context(), name, options); err != nil {
		t.Fatal(err)
	}
}

// A SlotClaim that somebody deletes while its ResourceClaim is prepared is made again, also by the next
// process; not once it is unprepared, nor when another has the slot, which is said.
func TestClaimedAgain(t *testing.T) {
	dir := t.TempDir()
	a := newAPI(configuration(3), claim("u1", "one "+camera+" 2"))
	r := start(t, a, here, dir)
	c := claim("u1", "one "+camera+" 2")
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	before := a.claimed(t)
	again := func(name string) func() bool { return func() bool { return a.claimed(t)[name] == before[name] } }

	a.remove(t, camera+"-0")
	await.That(t, "slot 0 to be claimed again", again(camera+"-0"))
	made, err := a.KubeslotV1alpha1().SlotClaims().Get(t.Context(), camera+"-0", metav1.GetOptions{})
	if err != nil || !made.Spec.MadeAgain || made.Spec.ResourceClaim == nil || made.Spec.ResourceClaim.UID != "u1" {
		t.Errorf("made again: %+v (%v)", made.Spec, err)
	}

	r.lose(t, camera+"-0")
	r.lose(t, camera+"-1")
	a.noneAgain.Store(false)
	await.That(t, "it to be prepared again with both", func() bool {
		return r.ask(t, c) == nil && again(camera+"-0")() && again(camera+"-1")()
	})

	r.kill()
	a.remove(t, camera+"-1")
	r = start(t, a, here, dir)
	await.That(t, "slot 1 to be claimed again after a restart", again(camera+"-1"))

	r.lose(t, camera+"-0")
	a.put(t, camera+"-0", v1alpha1.SlotClaimSpec{NodeName: there, Holder: "another"})
	a.noneAgain.Store(false)
	event := await.Next(t, "an event", r.events.Events)
	for _, part := range []string{"SlotLost", camera + "-0", "ResourceClaim ns/claim-u1", "another"} {
		if !strings.Contains(event, part) {
			t.Errorf("event %q does not say %q", event, part)
		}
	}
	if err := unprepare(t, r, "u1"); err != nil {
		t.Fatal(err)
	}
	if err := r.look(t.Context()); err != nil {
		t.Error(err)
	}
	if now := r.held(t); len(now) != 1 || now[camera+"-0"] != "another" {
		t.Errorf("after it was unprepared: %v", now)
	}
}

// What a ResourceClaim is prepared with, another one does not get, though nothing claims it now.
func TestPreparedAndNotClaimed(t *testing.T) {
	a := newAPI(configuration(2))
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	r.lose(t, camera+"-0")
	if err := r.ask(t, claim("u2", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{camera + "-1": "dra.u2.s0"}, a.claimed(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := r.ask(t, claim("u3", "one "+camera+" 1")); err == nil ||
		!strings.Contains(err.Error(), "held by ResourceClaim ns/claim-u1 on node "+here) {
		t.Errorf("none is free, and the error is %v", err)
	}
}

// The Node object is deleted, and its SlotClaims with it: what is prepared is claimed again when it is back.
func TestNodeIsDeleted(t *testing.T) {
	c := claim("u1", "one "+camera+" 1")
	a := newAPI(configuration(2), c)
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	nodes := a.kube.CoreV1().Nodes()
	if err := nodes.Delete(t.Context(), here, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the informer to show it", func() bool {
		_, shown, _ := r.nodes.GetByKey(here)
		return !shown
	})
	r.lose(t, camera+"-0")
	a.noneAgain.Store(false)
	await.That(t, "an error: the slot is nobody's", func() bool {
		err := r.ask(t, c)
		return err != nil && strings.Contains(err.Error(), "no Node object")
	})
	again := node(here)
	again.UID = "another"
	if _, err := nodes.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the slot to be claimed again", func() bool { return a.claimed(t)[camera+"-0"] == "dra.u1.s0" })
}

// A CDI spec that cannot be read, or that another version wrote, keeps no other ResourceClaim's slots from being
// claimed again, and its own slots stay claimed.
func TestSpecThatCannotBeRead(t *testing.T) {
	for _, content := range []string{"{", `{"annotations": {"slots.kubeslot.io/prepared": "{\"slots\": []}"}}`} {
		a := newAPI(configuration(3), claim("u1", "one "+camera+" 1"), claim("u2", "one "+camera+" 1"))
		r := start(t, a, here, t.TempDir())
		for _, uid := range []types.UID{"u1", "u2"} {
			if err := r.ask(t, claim(uid, "one "+camera+" 1")); err != nil {
				t.Fatal(err)
			}
		}
		r.kill()
		if err := os.WriteFile(r.specPath("u1"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		a.remove(t, camera+"-1")
		r = start(t, a, here, r.dir)
		if err := r.describeAgain(t.Context()); err == nil || !strings.Contains(err.Error(), "u1") {
			t.Errorf("the error %v does not name the ResourceClaim of the bad file", err)
		}
		await.That(t, "the slot to be claimed again", func() bool { return a.claimed(t)[camera+"-1"] == "dra.u2.s0" })
		if err := r.look(t.Context()); err != nil {
			t.Error(err)
		}
		want := map[string]string{camera + "-0": "dra.u1.s0", camera + "-1": "dra.u2.s0"}
		if diff := cmp.Diff(want, r.held(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		r.kill()
	}
}
