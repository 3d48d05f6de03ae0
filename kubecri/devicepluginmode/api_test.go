package devicepluginmode

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// api is an API server's SlotClaims. It reports each change to those that follow it.
type api struct {
	mu      sync.Mutex
	version int
	creates int // calls
	patches int // of claims
	claims  map[string]*v1alpha1.SlotClaim
	follow  []func(name slot.Name, c *v1alpha1.SlotClaim, gone bool)
	// cut has each call wait for the end of its context.
	cut bool
	// creating and deleting, if set, are called before each create and each deletion.
	creating, deleting func()
	// lost has a create or a deletion be done, and its answer be lost.
	lost bool
	// late has a deletion be done by deliver alone, and its answer be lost.
	late       bool
	onTheirWay []func()
	// refusal, if there is one, is the answer to each call.
	refusal error
}

// refuse has the API server answer each call with the error; nil ends it.
func (a *api) refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal = err
}

func newAPI() *api { return &api{claims: map[string]*v1alpha1.SlotClaim{}} }

// client is a clientset that has the API's SlotClaims.
type client struct {
	versioned.Interface
	api *api
}

func (c client) KubeslotV1alpha1() typed.KubeslotV1alpha1Interface {
	return group{c.Interface.KubeslotV1alpha1(), c.api}
}

type group struct {
	typed.KubeslotV1alpha1Interface
	api *api
}

func (g group) SlotClaims() typed.SlotClaimInterface { return slotClaims{api: g.api} }

type slotClaims struct {
	typed.SlotClaimInterface
	api *api
}

var resource = schema.GroupResource{Group: "kubeslot.io", Resource: "slotclaims"}

func (s slotClaims) reach(ctx context.Context) error {
	s.api.mu.Lock()
	cut, refusal := s.api.cut, s.api.refusal
	s.api.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	if cut {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return ctx.Err()
}

func (s slotClaims) Create(ctx context.Context, c *v1alpha1.SlotClaim, _ metav1.CreateOptions,
) (*v1alpha1.SlotClaim, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	if s.api.creating != nil {
		s.api.creating()
	}
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	s.api.creates++
	if s.api.claims[c.Name] != nil {
		return nil, apierrors.NewAlreadyExists(resource, c.Name)
	}
	s.api.version++
	c = c.DeepCopy()
	c.UID, c.ResourceVersion = types.UID(strconv.Itoa(s.api.version)), strconv.Itoa(s.api.version)
	s.api.claims[c.Name] = c
	s.api.notify(c, false)
	if s.api.lost {
		return nil, errLost
	}
	return c.DeepCopy(), nil
}

var errLost = errors.New("the connection was lost")

func (s slotClaims) Get(ctx context.Context, name string, _ metav1.GetOptions) (*v1alpha1.SlotClaim, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	if c := s.api.claims[name]; c != nil {
		return c.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func (s slotClaims) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	if s.api.deleting != nil {
		s.api.deleting()
	}
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	if s.api.late {
		s.api.onTheirWay = append(s.api.onTheirWay, func() { _ = s.api.remove(name, *o.Preconditions.UID) })
		return errLost
	}
	if err := s.api.remove(name, *o.Preconditions.UID); err != nil || !s.api.lost {
		return err
	}
	return errLost
}

// remove deletes a claim. The mutex is held.
func (a *api) remove(name string, uid types.UID) error {
	c := a.claims[name]
	switch {
	case c == nil:
		return apierrors.NewNotFound(resource, name)
	case uid != c.UID:
		return apierrors.NewConflict(resource, name, errors.New("another UID"))
	}
	delete(a.claims, name)
	a.version++
	a.notify(c, true)
	return nil
}

// deliver does the deletions that are on their way.
func (a *api) deliver() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, do := range a.onTheirWay {
		do()
	}
	a.onTheirWay = nil
}

func (s slotClaims) Patch(ctx context.Context, name string, _ types.PatchType, data []byte,
	_ metav1.PatchOptions, _ ...string) (*v1alpha1.SlotClaim, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	c := s.api.claims[name]
	switch {
	case c == nil:
		return nil, apierrors.NewNotFound(resource, name)
	case patch.Metadata.ResourceVersion != c.ResourceVersion:
		return nil, apierrors.NewConflict(resource, name, errors.New("another version"))
	}
	s.api.version++
	s.api.patches++
	c = c.DeepCopy()
	c.ResourceVersion, c.Annotations = strconv.Itoa(s.api.version), patch.Metadata.Annotations
	s.api.claims[name] = c
	s.api.notify(c, false)
	return c.DeepCopy(), nil
}

func (a *api) notify(c *v1alpha1.SlotClaim, gone bool) {
	name, _ := c.Slot()
	for _, f := range a.follow {
		f(name, c, gone)
	}
}

// usage is who has which slot.
func (a *api) usage() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]string{}
	for name, c := range a.claims {
		all[name] = c.Spec.Usage().String()
	}
	return all
}
