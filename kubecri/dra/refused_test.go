package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Slots of which a part is claimed when the time is over, or the API server is away, are claimed further at the next
// try; none is given back.
func TestPrepareGoesOn(t *testing.T) {
	a := newAPI(configuration(8))
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 8")
	for _, has := range []int{3, 6} {
		ctx, over := context.WithCancel(t.Context())
		n := 0
		a.set(func(do func() error) error {
			if n++; n == 4 {
				over()
				return ctx.Err()
			}
			return do()
		})
		results, _ := r.PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{c})
		err := results["u1"].Err
		want := fmt.Sprintf("device %s: %d of the 8 slots that request one was allocated are claimed", camera, has)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "ResourceClaim ns/claim-u1") {
			t.Errorf("the error %v does not say %q", err, want)
		}
		if n := len(a.claimed(t)); n != has {
			t.Errorf("%d slots are claimed, want %d", n, has)
		}
	}
	a.set(nil)
	if err := r.ask(t, c); err != nil || len(a.claimed(t)) != 8 {
		t.Errorf("%v; claimed %v", err, a.claimed(t))
	}
	if err := unprepare(t, r, "u1"); err != nil || len(r.held(t)) != 0 {
		t.Errorf("%v; claimed %v", err, a.claimed(t))
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		of    func(*akriv0.Configuration)
		spoil func(*rig)
		claim *resourceapi.ResourceClaim
		want  []string
	}{
		"a namespace that is not allowed": {
			of:   func(c *akriv0.Configuration) { c.Spec.AllowedNamespaces = &akriv0.AllowedNamespaces{} },
			want: []string{"default/cam", "spec.allowedNamespaces", "namespace ns"}},
		"slots that the scheduler gives": {
			of:   func(c *akriv0.Configuration) { c.Status.Allocator = nil },
			want: []string{camera, "default/cam", "kube-scheduler gives"}},
		"a Configuration that is being deleted": {
			of: func(c *akriv0.Configuration) {
				c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"x"}
			},
			want: []string{camera, "Configuration cam", "being deleted"}},
		"a device that is not seen": {
			spoil: func(r *rig) { r.devices.set(nil) },
			want:  []string{camera, "does not see it"}},
		"parameters for us": {
			claim: parameters(v1alpha1.DRADriver), want: []string{"request one", v1alpha1.DRADriver, "takes none",
				"FromClaim"}},
		"no CDI": {spoil: func(r *rig) { r.CDI = nil }, want: []string{"--cdi-dir"}},
		"CDI is off": {
			spoil: func(r *rig) { r.runtime.dir = "/other" },
			want:  []string{"enable_cdi", "/cdi"}},
		"an API server that is away": {
			spoil: func(r *rig) { r.api.set(away) },
			want:  []string{camera + "-0", "connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration(2)
			if test.of != nil {
				test.of(c)
			}
			r := start(t, newAPI(c), here, t.TempDir())
			if test.spoil != nil {
				test.spoil(r)
			}
			err := r.ask(t, cmp.Or(test.claim, claim("u1", "one "+camera+" 1")))
			for _, part := range append(test.want, "ResourceClaim ns/claim-u1", "node "+here) {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("the error %v does not say %q", err, part)
				}
			}
			if got := r.api.claimed(t); len(got) != 0 {
				t.Errorf("claimed %v", got)
			}
		})
	}
}

// Without a Node object, which owns what the node claims, nothing is claimed.
func TestNoNode(t *testing.T) {
	a := newAPI(configuration(2))
	if err := a.kube.CoreV1().Nodes().Delete(t.Context(), here, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := start(t, a, here, t.TempDir()).ask(t, claim("u1", "one "+camera+" 1"))
	if err == nil || !strings.Contains(err.Error(), "no Node object") {
		t.Errorf("%v", err)
	}
}

// A slot that a container here uses is not given, though somebody has deleted its claim.
func TestSlotOfAContainer(t *testing.T) {
	a := newAPI(configuration(2))
	r := start(t, a, here, t.TempDir())
	r.runtime.has(container("c1", "p1", camera+"-0"))
	a.set(away) // so that it is not claimed again yet
	r.Claims.Resync()
	await.That(t, "the container to be known", func() bool { return len(r.Claims.Taken(camera, "")) == 1 })
	a.set(nil)
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	if got := a.claimed(t); got[camera+"-1"] != "dra.u1.s0" || got[camera+"-0"] == "dra.u1.s0" {
		t.Errorf("claimed %v", got)
	}
}

// away is the fault of an API server that cannot be reached.
func away(func() error) error { return errors.New("connection refused") }
