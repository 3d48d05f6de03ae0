package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	kubeslotv1alpha1 "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// callTimeout bounds one call of the API server, without the time that the
	// client's own rate limiter takes.
	callTimeout = 5 * time.Second
	// parallel is how many claims of a pod are written at once, and maxCalls how many of
	// all pods: the API server is slower with more, and then calls run into their timeout.
	parallel, maxCalls = 16, 32
	// fieldManager is who the API server says has written a claim.
	fieldManager = "kube-scheduler-claims"
)

// backoff is between attempts, and bounds them: 5 s and ten calls.
var backoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10}

// Writer creates and deletes claims. Safe for concurrent use.
type Writer struct {
	Client versioned.Interface
	Clock  clock.Clock

	once  sync.Once
	calls chan struct{} // holds one for each call under way
}

// NewClient makes the client for a Writer.
func NewClient(config *restclient.Config) (versioned.Interface, error) {
	config = restclient.CopyConfig(config)
	config.Timeout = callTimeout
	return versioned.NewForConfig(config)
}

// Take creates the claims, all or none. It returns those that it created, as the API server
// has them, or a *Held when another has one of the slots. After an error they are deleted
// again; one that could not be deleted is left to its node.
//
// A claim of the pod that was there before is not among them, so that nobody here deletes it:
// a container may use it, whatever the API server says of the pod. Its node may have made it
// again, or a scheduler before this one has bound the pod, and a backup was restored since.
func (w *Writer) Take(ctx context.Context, claims []*v1alpha1.SlotClaim) ([]*v1alpha1.SlotClaim, error) {
	all, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	taken := make([]*v1alpha1.SlotClaim, len(claims))
	workqueue.ParallelizeUntil(all, parallel, len(claims), func(i int) {
		var err error
		if taken[i], err = w.create(all, claims[i]); err != nil {
			stop(err) // the first counts
		}
	})
	err := context.Cause(all)
	countTaken(len(claims), err)
	created := slices.DeleteFunc(taken, func(c *v1alpha1.SlotClaim) bool { return c == nil })
	if err == nil {
		return created, nil
	}
	if err := w.Release(ctx, created); err != nil {
		klog.FromContext(ctx).Error(err, "Slots stay claimed for a pod that is not bound; they are released later")
	}
	return nil, err
}

// create creates a claim, and returns nil if the pod's was there before. With an error it
// returns the claim, without UID, if it may have been created all the same.
func (w *Writer) create(ctx context.Context, want *v1alpha1.SlotClaim) (created *v1alpha1.SlotClaim, err error) {
	var lost *v1alpha1.SlotClaim
	err = w.attempt(ctx, func(ctx context.Context) error {
		got, err := w.claims().Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
		switch {
		case err == nil:
			created = got
		case apierrors.IsAlreadyExists(err):
			if got, err = w.found(ctx, want); err == nil && lost != nil && writtenHere(got) {
				created = got
			}
		case retriable(err) && !apierrors.IsTooManyRequests(err):
			lost = want
		}
		return err
	})
	if err != nil {
		return lost, fmt.Errorf("create SlotClaim %s: %w", want.Name, err)
	}
	return created, nil
}

// writtenHere reports whether a scheduler has written the claim, by its field manager. It
// tells a claim whose creation was not answered from one that the node made meanwhile.
func writtenHere(c *v1alpha1.SlotClaim) bool {
	return !c.Spec.MadeAgain && slices.ContainsFunc(c.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == fieldManager })
}

// found returns the claim that exists already, if it is the one that is wanted.
func (w *Writer) found(ctx context.Context, want *v1alpha1.SlotClaim) (*v1alpha1.SlotClaim, error) {
	found, err := w.claims().Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errAgain // it was released since
	case err != nil:
		return nil, err
	case !same(found, want):
		return nil, &Held{By: found}
	case found.DeletionTimestamp != nil:
		return nil, errAgain // it is on its way out
	}
	return found, nil
}

// Release deletes the claims, as Take returned them.
func (w *Writer) Release(ctx context.Context, claims []*v1alpha1.SlotClaim) error {
	ctx = context.WithoutCancel(ctx)
	errs := make([]error, len(claims))
	workqueue.ParallelizeUntil(ctx, parallel, len(claims), func(i int) {
		c := claims[i]
		err := w.attempt(ctx, func(ctx context.Context) error {
			if c.UID == "" { // the answer to its creation was lost
				found, err := w.claims().Get(ctx, c.Name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) || err == nil && !(same(found, c) && writtenHere(found)) {
					return nil
				}
				if err != nil {
					return err
				}
				c = found
			}
			return w.delete(ctx, c.Name, c.UID)
		})
		if err != nil {
			errs[i] = fmt.Errorf("delete SlotClaim %s: %w", c.Name, err)
		}
	})
	return errors.Join(errs...)
}

// delete deletes the claim with that UID, if it is there.
func (w *Writer) delete(ctx context.Context, name string, uid types.UID) error {
	err := w.claims().Delete(ctx, name, *metav1.NewPreconditionDeleteOptions(string(uid)))
	switch {
	case err == nil:
		released.WithLabelValues(unbound).Inc()
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another by now
		return nil
	}
	return err
}

// attempt makes calls until one is answered for good, within a bounded time. Those
// under way are waited for, also when there is no more time for another.
func (w *Writer) attempt(ctx context.Context, call func(context.Context) error) error {
	w.once.Do(func() { w.calls = make(chan struct{}, maxCalls) })
	var last error
	for backoff := backoff; ctx.Err() == nil; {
		select {
		case w.calls <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		last = call(context.WithoutCancel(ctx))
		<-w.calls
		if last == nil || !retriable(last) || backoff.Steps == 1 {
			return explain(last)
		}
		select {
		case <-w.Clock.After(backoff.Step()):
		case <-ctx.Done():
		}
	}
	return cmp.Or(explain(last), context.Cause(ctx))
}

func (w *Writer) claims() kubeslotv1alpha1.SlotClaimInterface {
	return w.Client.KubeslotV1alpha1().SlotClaims()
}

// errAgain asks for another attempt.
var errAgain = errors.New("it is being released")

// retriable reports whether another attempt may succeed: there was no answer, or the
// API server could not do it now.
func retriable(err error) bool {
	if _, held := errors.AsType[*Held](err); held {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || apierrors.IsTooManyRequests(err)
}

// explain says how to get a right that is missing.
func explain(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("%w; kubectl apply -k deploy/scheduler-claims gives the right", err)
	}
	return err
}
