package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// parallelWrites are under way at the same time.
	parallelWrites = 8

	// Between two passes of writes are minPause, doubled up to maxPause while changes
	// keep coming. The first change after a pause is written at once.
	minPause = 200 * time.Millisecond
	maxPause = time.Second

	// maxLag is how long is waited for the cache to show what was written.
	maxLag = 15 * time.Second
)

// errTaken is returned when a slice of another node has the name.
var errTaken = errors.New("another node has a DeviceSlice of this name, so this node takes another name")

// write keeps the node's slices as plan wants them until ctx ends.
func (a *Agent) write(ctx context.Context) {
	w := writer{Agent: a, taken: map[string]bool{}}
	backoff, pause, last := retries(), minPause, time.Time{}
	for {
		select {
		case <-a.dirty:
		case <-ctx.Done():
			return
		}
		early := pause - a.config.Clock.Since(last)
		if early > 0 {
			a.sleep(ctx, early)
			select { // what has come meanwhile is in this pass
			case <-a.dirty:
			default:
			}
		}
		started := a.config.Clock.Now()
		wrote, err := w.sync(ctx)
		switch {
		case !wrote && err == nil:
			pause = minPause
		case early > 0:
			last, pause = started, min(2*pause, maxPause)
		default:
			last, pause = started, minPause
		}
		if err == nil || ctx.Err() != nil {
			backoff = retries()
			continue
		}
		klog.FromContext(ctx).Error(err, "Cannot write all DeviceSlices, trying again")
		wake(a.dirty)
		a.sleep(ctx, backoff.Step())
	}
}

// writer has what the goroutine that writes slices alone knows.
type writer struct {
	*Agent
	taken   map[string]bool // names of slices that belong to other nodes
	waiting bool            // it was told that there is no Node object
}

// sync makes the slices what they should be, and reports whether that took a write.
func (w *writer) sync(ctx context.Context) (wrote bool, err error) {
	logger := klog.FromContext(ctx)
	node := w.node()
	if node == nil {
		if !w.waiting {
			logger.Info("There is no Node object of this node yet: its devices are reported when there is", "node", w.config.NodeName)
		}
		w.waiting = true
		return false, nil // its event will come
	}
	w.waiting = false
	v, err := w.view(ctx, v1alpha1.NodeOwner(node.Name, node.UID))
	if err != nil {
		return false, err
	}
	first, then := plan(v)
	if len(first)+len(then) == 0 {
		return false, nil
	}
	if err := w.apply(ctx, first); err != nil {
		return true, err
	}
	if err := w.apply(ctx, then); err != nil {
		return true, err
	}
	logger.Info("Wrote DeviceSlices", "slices", len(first)+len(then))
	w.awaitCache(ctx, append(first, then...))
	return true, nil
}

// view is what is known now.
func (w *writer) view(ctx context.Context, owner metav1.OwnerReference) (*view, error) {
	v := &view{node: w.config.NodeName, owner: owner, slices: w.ownSlices(), complete: true,
		known: map[v1alpha1.ConfigurationReference]known{}, taken: w.taken}
	all := map[v1alpha1.ConfigurationReference]bool{}
	owners := map[string]*v0.Configuration{}
	for _, c := range w.allConfigurations() {
		all[reference(c)] = true
		if v0.CompareOwners(c, owners[c.Name]) < 0 {
			owners[c.Name] = c
		}
	}
	w.mu.RLock()
	for name, c := range owners {
		k := known{}
		if s := w.sessions[name]; s != nil && s.discovers(c, w.selects(c)) {
			k.standing = s.standing
			v.problems = append(v.problems, s.toWrite()...)
		}
		if c.Spec.Discovery != nil {
			k.label = name
		}
		v.known[reference(c)] = k
		v.complete = v.complete && k.settled
	}
	w.mu.RUnlock()
	for _, s := range v.slices {
		for i := range s.Spec.Devices {
			ref := s.Spec.Devices[i].Configuration
			if _, ok := v.known[ref]; ok || all[ref] {
				continue
			}
			// Pods may use the devices, so a cache alone is not enough.
			_, err := w.config.Client.AkriV0().Configurations(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			switch {
			case err == nil: // its event will come
				v.known[ref] = known{}
			case !apierrors.IsNotFound(err):
				return nil, fmt.Errorf("read Configuration %s, of which DeviceSlice %s has devices: %w", ref, s.Name, err)
			}
			all[ref] = true
		}
	}
	return v, nil
}

// apply writes the changes, several at a time.
func (w *writer) apply(ctx context.Context, changes []change) error {
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	errs := make([]error, len(changes))
	for i, c := range changes {
		group.Go(func() error {
			errs[i] = w.put(ctx, c)
			return nil
		})
	}
	_ = group.Wait() // errs has them
	for i, err := range errs {
		if errors.Is(err, errTaken) {
			w.taken[changes[i].slice.Name] = true
		}
	}
	return errors.Join(errs...)
}

// put writes one change. The node alone writes its slices, so what somebody else
// wrote in between is overwritten.
func (w *writer) put(ctx context.Context, c change) (err error) {
	client, s, verb := w.config.Client.KubeslotV1alpha1().DeviceSlices(), c.slice, "update"
	switch {
	case c.delete:
		verb = "delete"
		err = client.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
	case s.ResourceVersion == "":
		verb = "create"
		if _, err = client.Create(ctx, s, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			if is, getErr := client.Get(ctx, s.Name, metav1.GetOptions{}); getErr == nil && is.Spec.NodeName != s.Spec.NodeName {
				err = errTaken
			}
		}
	default:
		if _, err = client.Update(ctx, s, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
			var is *v1alpha1.DeviceSlice
			if is, err = client.Get(ctx, s.Name, metav1.GetOptions{}); err == nil {
				again := *s
				again.UID, again.ResourceVersion = is.UID, is.ResourceVersion
				_, err = client.Update(ctx, &again, metav1.UpdateOptions{})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s DeviceSlice %s: %w", verb, s.Name, err)
	}
	return nil
}

// awaitCache waits until the cache shows what was written: a plan of what was before
// would meet conflicts.
func (w *writer) awaitCache(ctx context.Context, changes []change) {
	end := w.config.Clock.Now().Add(maxLag)
	lags := func(c change) bool {
		version := ""
		if s, err := w.config.Slices.Lister().Get(c.slice.Name); err == nil {
			version = s.ResourceVersion
		}
		return version == c.slice.ResourceVersion // as before
	}
	for slices.ContainsFunc(changes, lags) && ctx.Err() == nil && w.config.Clock.Now().Before(end) {
		w.sleep(ctx, end.Sub(w.config.Clock.Now()), w.written)
	}
}
