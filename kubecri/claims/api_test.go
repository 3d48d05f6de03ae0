package claims

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const here, there = "node-a", "node-b"

// api is an API server that knows Configuration "cam" and both nodes. It gives UIDs
// and recognizes those that a delete asks for.
type api struct {
	*fake.Clientset
	kube *kubefake.Clientset
	mu   sync.Mutex
	uids int
	done int // creates and deletes
	// fault, if set, stands between a call and the API server: do does what the verb
	// says. It may change what is there past the clientset, which handles one at a time.
	fault func(verb string, do func() error) error
	// creating, if set, is called before each create, by several callers at once.
	creating func(context.Context) error
}

func (a *api) KubeslotV1alpha1() typed.KubeslotV1alpha1Interface {
	return creates{a.Clientset.KubeslotV1alpha1(), a}
}

type creates struct {
	typed.KubeslotV1alpha1Interface
	api *api
}

func (c creates) SlotClaims() typed.SlotClaimInterface {
	return createsClaims{c.KubeslotV1alpha1Interface.SlotClaims(), c.api}
}

type createsClaims struct {
	typed.SlotClaimInterface
	api *api
}

func (c createsClaims) Create(ctx context.Context, claim *v1alpha1.SlotClaim, options metav1.CreateOptions) (*v1alpha1.SlotClaim, error) {
	if c.api.creating != nil {
		if err := c.api.creating(ctx); err != nil {
			return nil, err
		}
	}
	return c.SlotClaimInterface.Create(ctx, claim, options)
}

// newAPI has the claims, each as "<level> <holder> <node>", by slot.
func newAPI(t *testing.T, capacity int32, claims map[string]string) *api {
	t.Helper()
	a := &api{kube: kubefake.NewClientset(node(here, "uid-a"), node(there, "uid-b")), Clientset: fake.NewSimpleClientset(
		&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}, Spec: akriv0.ConfigurationSpec{Capacity: capacity}})}
	for name, text := range claims {
		a.put(t, name, text)
	}
	a.PrependReactor("*", "slotclaims", func(action ktesting.Action) (bool, runtime.Object, error) {
		var made runtime.Object
		handled := true
		do := func() (err error) {
			switch action := action.(type) {
			case ktesting.CreateAction:
				claim := action.GetObject().(*v1alpha1.SlotClaim).DeepCopy()
				made, err = claim, a.add(claim)
			case ktesting.DeleteActionImpl:
				if there := a.claim(t, action.Name); there != nil && there.UID != *action.DeleteOptions.Preconditions.UID {
					return apierrors.NewConflict(action.GetResource().GroupResource(), action.Name, errors.New("another UID"))
				}
				err = a.Tracker().Delete(action.GetResource(), "", action.Name)
			default:
				handled = false
				return nil
			}
			if err == nil {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.done++
			}
			return err
		}
		a.mu.Lock()
		fault := a.fault
		a.mu.Unlock()
		if fault == nil {
			err := do()
			return handled, made, err
		}
		err := fault(action.GetVerb(), do)
		return handled || err != nil, made, err
	})
	return a
}

// away is the fault of an API server that cannot be reached.
func away(string, func() error) error { return errors.New("connection refused") }

// set sets the fault; nil for none.
func (a *api) set(fault func(verb string, do func() error) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = fault
}

func (a *api) writes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

func node(name, uid string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
}

func (a *api) add(claim *v1alpha1.SlotClaim) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uids++
	claim.UID = types.UID(strconv.Itoa(a.uids))
	return a.Tracker().Create(claimResource, claim, "")
}

var claimResource = v1alpha1.SchemeGroupVersion.WithResource("slotclaims")

// claim returns a slot's claim as stored, nil for none.
func (a *api) claim(t testing.TB, name string) *v1alpha1.SlotClaim {
	t.Helper()
	got, err := a.Tracker().Get(claimResource, "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return got.(*v1alpha1.SlotClaim)
}

// who returns who has a slot, in newAPI's form; "" for nobody.
func (a *api) who(t testing.TB, name string) string {
	t.Helper()
	c := a.claim(t, name)
	if c == nil {
		return ""
	}
	return strings.Join([]string{string(c.Spec.Level), c.Spec.Holder, c.Spec.NodeName}, " ")
}

// claimed makes a claim, of a pod of the namespace "ns".
func claimed(t testing.TB, name, text string) *v1alpha1.SlotClaim {
	t.Helper()
	parts := strings.Fields(text)
	level, holder, node := v1alpha1.Level(parts[0]), parts[1], parts[2]
	return v1alpha1.NewSlotClaim(mustSlot(t, name), specOf(node, Pod{"ns", "pod-" + holder, holder}, "main", level), v1alpha1.NodeOwner(node, "uid"))
}

// put creates a claim as somebody else would, past the clientset.
func (a *api) put(t testing.TB, name, text string) {
	t.Helper()
	if err := a.add(claimed(t, name, text)); err != nil {
		t.Fatal(err)
	}
}

// remove deletes a claim as somebody else would, past the clientset.
func (a *api) remove(t testing.TB, name string) {
	t.Helper()
	if err := a.Tracker().Delete(claimResource, "", name); err != nil {
		t.Fatal(err)
	}
}
