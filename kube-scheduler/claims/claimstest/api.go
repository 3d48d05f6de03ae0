// Package claimstest has an API server for tests that treats SlotClaims as the real
// one does: it gives them UIDs and resource versions, notes who created them, and
// respects a deletion's precondition.
package claimstest

import (
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Claims is the resource.
var Claims = v1alpha1.SchemeGroupVersion.WithResource("slotclaims")

// API is the API server, and a client of it.
type API struct {
	*fake.Clientset
	// Before and After are called ahead of each call and when it has been carried out,
	// with its verb and the claim's name. An error is the call's answer.
	Before, After func(verb, name string) error

	version int
}

// New returns an API server without claims.
func New() *API {
	a := &API{Clientset: fake.NewSimpleClientset()}
	a.react("create", func(action clienttesting.Action) (runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		c := create.GetObject().(*v1alpha1.SlotClaim).DeepCopy()
		c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: create.GetCreateOptions().FieldManager, Operation: metav1.ManagedFieldsOperationUpdate}}
		return a.store(c)
	})
	a.react("get", func(action clienttesting.Action) (runtime.Object, error) {
		return a.Tracker().Get(Claims, "", action.(clienttesting.GetAction).GetName())
	})
	a.react("delete", func(action clienttesting.Action) (runtime.Object, error) {
		d := action.(clienttesting.DeleteActionImpl)
		c := a.Claim(d.Name)
		if pre := d.DeleteOptions.Preconditions; c != nil && pre != nil && pre.UID != nil && *pre.UID != c.UID {
			return nil, apierrors.NewConflict(Claims.GroupResource(), d.Name, errors.New("the UID is another"))
		}
		return nil, a.Tracker().Delete(Claims, "", d.Name)
	})
	return a
}

func (a *API) react(verb string, carryOut func(clienttesting.Action) (runtime.Object, error)) {
	a.PrependReactor(verb, Claims.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := nameOf(action)
		if a.Before != nil {
			if err := a.Before(verb, name); err != nil {
				return true, nil, err
			}
		}
		obj, err := carryOut(action)
		if err == nil && a.After != nil {
			err = a.After(verb, name)
		}
		if err != nil {
			return true, nil, err
		}
		return true, obj, nil
	})
}

func nameOf(action clienttesting.Action) string {
	if create, ok := action.(clienttesting.CreateAction); ok {
		return create.GetObject().(metav1.Object).GetName()
	}
	return action.(interface{ GetName() string }).GetName()
}

// store stores a copy of the claim that is new, and returns it.
func (a *API) store(c *v1alpha1.SlotClaim) (*v1alpha1.SlotClaim, error) {
	c = c.DeepCopy()
	a.version++
	c.UID, c.ResourceVersion = types.UID(fmt.Sprint("claim-", a.version)), strconv.Itoa(a.version)
	return c, a.Tracker().Create(Claims, c, "")
}

// Put creates a claim as somebody else does, and returns it.
func (a *API) Put(c *v1alpha1.SlotClaim) *v1alpha1.SlotClaim {
	c, err := a.store(c)
	if err != nil {
		panic(err)
	}
	return c
}

// Remove deletes a claim as somebody else does.
func (a *API) Remove(name string) {
	if err := a.Tracker().Delete(Claims, "", name); err != nil {
		panic(err)
	}
}

// Claim returns what is stored under the name, nil when nothing is.
func (a *API) Claim(name string) *v1alpha1.SlotClaim {
	obj, err := a.Tracker().Get(Claims, "", name)
	if err != nil {
		return nil
	}
	return obj.(*v1alpha1.SlotClaim)
}

// Calls returns how many calls of the verb there were.
func (a *API) Calls(verb string) int {
	n := 0
	for _, action := range a.Actions() {
		if action.Matches(verb, Claims.Resource) {
			n++
		}
	}
	return n
}
