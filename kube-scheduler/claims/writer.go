package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	// callTimeout bounds one call of the API server.
	callTimeout = 5 * time.Second
	// patience bounds all attempts to claim or release the slots of one Instance.
	patience = 20 * time.Second
	// maxRefusals in a row mean as many other writers, or a policy that is against it.
	maxRefusals = 10
	// fieldManager is who the API server says has written a claim.
	fieldManager = "kube-scheduler-claims"
)

// backoff is between attempts.
var backoff = wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 20, Cap: time.Second}

// Writer writes claims. Safe for concurrent use.
type Writer struct {
	Client versioned.Interface
	// Seen is told of each Instance that was read because it was not as expected, and
	// of what Release has left, before it returns.
	Seen func(*akriv0.Instance)

	mu sync.Mutex
	// waiting are requests for Instances of which one is being served, see line.
	waiting map[types.NamespacedName][]*request
}

// Take claims slots of the Instance, which is as last seen: all of them or none,
// in one write. It returns a *Held when that cannot be. After another error they
// may be claimed nevertheless: it could not be found out in time.
func (w *Writer) Take(ctx context.Context, in *akriv0.Instance, claim Claim) error {
	err := w.write(ctx, &request{in: in, plan: func(in *akriv0.Instance, k knowledge) ([]operation, error) {
		if in == nil {
			return nil, &Held{Slot: claim.slots()[0]}
		}
		patch, err := take(in, claim, k.lost)
		if !k.live && (err != nil || len(patch) == 0) {
			return nil, errStale // what looks taken may have been released since
		}
		return patch, err
	}})
	countTaken(len(claim), err)
	return err
}

// Release gives back those slots of the Instance that are claimed as claim says.
func (w *Writer) Release(ctx context.Context, in *akriv0.Instance, claim Claim) error {
	var patch []operation
	err := w.write(ctx, &request{in: in, releases: true, plan: func(in *akriv0.Instance, k knowledge) ([]operation, error) {
		if !k.live {
			return nil, errStale
		}
		patch = nil
		if in != nil {
			patch = release(in, claim)
		}
		return patch, nil
	}})
	countReleased(unbound, patch, err)
	return err
}

// ReleaseStray gives back a claim that nobody is about to use, if the Instance is
// still as it was when that was found out.
func (w *Writer) ReleaseStray(ctx context.Context, in *akriv0.Instance, claim Claim) error {
	patch := release(in, claim)
	if len(patch) == 0 {
		return nil
	}
	instance := types.NamespacedName{Namespace: in.Namespace, Name: in.Name}
	_, _, err := w.send(ctx, instance, append(patch, test("/metadata/resourceVersion", in.ResourceVersion)))
	countReleased(stray, patch, err)
	if err != nil {
		return fmt.Errorf("write deviceUsage of Instance %s: %w", instance, err)
	}
	return nil
}

// send returns the Instance as the patch has left it, and reports with an error
// whether it was certainly not applied. It waits for the answer also when the pod has
// no more time.
func (w *Writer) send(ctx context.Context, instance types.NamespacedName, patch []operation) (left *akriv0.Instance, refused bool, err error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, true, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	left, err = w.Client.AkriV0().Instances(instance.Namespace).Patch(ctx, instance.Name, types.JSONPatchType, text, metav1.PatchOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		return left, false, nil
	case apierrors.IsInvalid(err), apierrors.IsConflict(err):
		// A test failed; or, as the API server says itself, others write the
		// Instance all the time.
		conflicts.Inc()
		return nil, true, err
	}
	return nil, apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || utilnet.IsConnectionRefused(err), err
}

func (w *Writer) get(ctx context.Context, instance types.NamespacedName) (*akriv0.Instance, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return w.Client.AkriV0().Instances(instance.Namespace).Get(ctx, instance.Name, metav1.GetOptions{})
}

// pause waits for the next attempt, or until there is no more time for it.
func pause(ctx context.Context, backoff *wait.Backoff) {
	select {
	case <-time.After(backoff.Step()):
	case <-ctx.Done():
	}
}
