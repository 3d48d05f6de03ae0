// Package deviceslices writes the node's DeviceSlices, which it alone writes: plan.go
// decides what they should be, as a function of values, and writer.go makes them so.
//
// It is level-triggered: whoever changes what is known wakes the Writer, which then
// looks at all of it. What the Writer has written counts before its cache shows it.
package deviceslices

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// parallelWrites are under way at the same time.
	parallelWrites = 8

	// Between two passes of writes are minPause, doubled up to maxPause while changes
	// keep coming. The first change after a pause is written at once.
	minPause = 200 * time.Millisecond
	maxPause = time.Second
)

// Retries paces what the API server refused: after 50 ms, doubled up to 10 s, short
// enough that an API server that returns finds its nodes soon.
func Retries() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 9, Cap: 10 * time.Second}
}

// errTaken is returned when a slice of another node has the name.
var errTaken = errors.New("another node has a DeviceSlice of this name, so this node takes another name")

// Config is what a Writer needs. All but Wrote and Held is required.
type Config struct {
	// NodeName is the node whose slices these are; no other Writer has it.
	NodeName string
	// Client writes DeviceSlices, and reads Configurations that State does not know.
	Client versioned.Interface
	// Slices need to hold no more than the node's.
	Slices informers.DeviceSliceInformer
	// Wrote is called with the name of each slice that was made or updated, which Slices may not have yet.
	Wrote func(name string)
	// Node returns the node's Node object, nil while there is none.
	Node func() *corev1.Node
	// State returns what is known now.
	State func() State
	// Held is called with how many changes of devices of each Configuration wait, at each look. Nil for no.
	Held func(map[v1alpha1.ConfigurationReference]int)
}

// State is what is known of the node's devices.
type State struct {
	// Known has the Configurations that own their names, and what is known of their
	// devices. These need not go.
	Known map[v1alpha1.ConfigurationReference]Known
	// Exist has all Configurations: devices of others may go.
	Exist map[v1alpha1.ConfigurationReference]bool
	// Problems each name a Configuration.
	Problems []v1alpha1.Problem
	// Complete is true when all is known that there is to report. Then the node has a
	// slice even if it has no devices.
	Complete bool
	// Holds reports whether the node holds slots of an Instance, or that is not known: its device
	// stays listed, though it is gone. Nil for no.
	Holds func(instance string) bool
}

// Writer keeps the node's slices as plan wants them. Safe for concurrent use.
type Writer struct {
	config Config
	dirty  wake.Signal // wakes Run
	own    *ownwrites.Writes[*v1alpha1.DeviceSlice]
	// Of Run alone:
	taken   map[string]bool // names of slices that belong to other nodes
	waiting bool            // it has logged that there is no Node object
	budget  budget
}

// New returns a Writer, to be started with Run.
func New(config Config) *Writer {
	return &Writer{config: config, dirty: wake.New(),
		own: ownwrites.New[*v1alpha1.DeviceSlice](clock.RealClock{}), taken: map[string]bool{}}
}

// Wake says that State, the Node object or Slices may have changed. It does not block.
func (w *Writer) Wake() { w.dirty.Send() }

// SliceGone says that Slices has lost a slice, which was as given last. It does not block.
func (w *Writer) SliceGone(last *v1alpha1.DeviceSlice) {
	w.own.Gone(last.Name, last.UID)
	w.Wake()
}

// Own are the node's slices as they are known to be: as the cache has them, or as this
// Writer has written them since. They must not be changed.
func (w *Writer) Own() []*v1alpha1.DeviceSlice {
	var cached []*v1alpha1.DeviceSlice
	for _, obj := range w.config.Slices.Informer().GetStore().List() {
		if s := obj.(*v1alpha1.DeviceSlice); s.Spec.NodeName == w.config.NodeName {
			cached = append(cached, s)
		}
	}
	return w.own.Merge(cached)
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	backoff, pause, last := Retries(), minPause, time.Time{}
	for {
		if !w.awaitNews(ctx) {
			return
		}
		early := pause - time.Since(last)
		if early > 0 {
			sleep(ctx, early)
			select { // what has come meanwhile is in this pass
			case <-w.dirty:
			default:
			}
		}
		started := time.Now()
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
			backoff = Retries()
			continue
		}
		klog.FromContext(ctx).Error(err, "Cannot write all DeviceSlices, trying again")
		w.Wake()
		sleep(ctx, backoff.Step())
	}
}

// awaitNews waits until there may be something to write, or ctx ends; then it reports false.
func (w *Writer) awaitNews(ctx context.Context) bool {
	var due <-chan time.Time
	if d, ok := w.due(); ok {
		due = time.After(d)
	}
	select {
	case <-w.dirty:
	case <-due:
	case <-ctx.Done():
		return false
	}
	return true
}

// due returns when the slices are to be looked at without news, and false for never.
func (w *Writer) due() (after time.Duration, ok bool) {
	after, ok = w.own.Forgets()
	if at := w.budget.next; !at.IsZero() {
		if held := time.Until(at); !ok || held < after {
			after, ok = held, true
		}
	}
	return after, ok
}

// sync makes the slices what they should be, and reports whether that took a write.
func (w *Writer) sync(ctx context.Context) (wrote bool, err error) {
	logger := klog.FromContext(ctx)
	node := w.config.Node()
	if node == nil {
		if !w.waiting {
			logger.Info("There is no Node object of this node yet: its devices are reported when there is", "node", w.config.NodeName)
		}
		w.waiting = true
		w.budget.next = time.Time{} // nothing is looked at before the Node's event
		return false, nil
	}
	w.waiting = false
	v, err := w.view(ctx, v1alpha1.NodeOwner(node.Name, node.UID))
	if err != nil {
		return false, err
	}
	first, then, held := w.budget.plan(v, time.Now())
	if w.config.Held != nil {
		w.config.Held(held)
	}
	if len(first)+len(then) == 0 {
		return false, nil
	}
	done, err := w.apply(ctx, first)
	if err == nil {
		var more []change
		more, err = w.apply(ctx, then)
		done = append(done, more...)
	}
	w.budget.wrote(v, done, time.Now())
	if err != nil {
		return true, err
	}
	logger.Info("Wrote DeviceSlices", "slices", len(first)+len(then))
	return true, nil
}

// view is what is known now, and the slices that there are.
func (w *Writer) view(ctx context.Context, owner metav1.OwnerReference) (*view, error) {
	v := &view{node: w.config.NodeName, owner: owner, State: w.config.State(), slices: w.Own(), taken: w.taken}
	for _, s := range v.slices {
		for i := range s.Spec.Devices {
			ref := s.Spec.Devices[i].Configuration
			if _, ok := v.Known[ref]; ok || v.Exist[ref] {
				continue
			}
			// Pods may use the devices, so a cache alone is not enough.
			_, err := w.config.Client.AkriV0().Configurations(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			switch {
			case err == nil: // its event will come
				v.Known[ref] = Known{}
			case !apierrors.IsNotFound(err):
				return nil, fmt.Errorf("read Configuration %s, of which DeviceSlice %s has devices: %w", ref, s.Name, err)
			}
			v.Exist[ref] = true
		}
	}
	return v, nil
}

// apply writes the changes, several at a time, and returns those that are written.
func (w *Writer) apply(ctx context.Context, changes []change) (done []change, err error) {
	errs := make([]error, len(changes))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), parallelWrites, len(changes), func(i int) {
		errs[i] = w.put(ctx, changes[i])
	})
	for i, err := range errs {
		if errors.Is(err, errTaken) {
			w.taken[changes[i].slice.Name] = true
		}
		if err == nil {
			done = append(done, changes[i])
		}
	}
	return done, errors.Join(errs...)
}

// put writes one change. The node alone writes its slices, so what somebody else
// wrote in between is overwritten.
func (w *Writer) put(ctx context.Context, c change) (err error) {
	client, s, verb := w.config.Client.KubeslotV1alpha1().DeviceSlices(), c.slice, "update"
	var is *v1alpha1.DeviceSlice
	switch {
	case c.delete:
		verb = "delete"
		err = client.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		if err == nil {
			w.own.Deleted(s.Name, s.UID)
		}
	case s.ResourceVersion == "":
		verb = "create"
		if is, err = client.Create(ctx, s, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			there, getErr := client.Get(ctx, s.Name, metav1.GetOptions{})
			switch {
			case getErr != nil: // it is looked at again
			case there.Spec.NodeName != s.Spec.NodeName:
				err = errTaken
			default: // a create that was not answered made it
				w.wrote(there)
			}
		}
	default:
		if is, err = client.Update(ctx, s, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
			if is, err = client.Get(ctx, s.Name, metav1.GetOptions{}); err == nil {
				again := *s
				again.UID, again.ResourceVersion = is.UID, is.ResourceVersion
				is, err = client.Update(ctx, &again, metav1.UpdateOptions{})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s DeviceSlice %s: %w", verb, s.Name, err)
	}
	if is != nil {
		w.wrote(is)
	}
	return nil
}

// wrote remembers a slice as the API server has returned it.
func (w *Writer) wrote(s *v1alpha1.DeviceSlice) {
	s = s.DeepCopy()
	s.ManagedFields = nil // an update without them leaves them as they are
	w.own.Wrote(s)
	if w.config.Wrote != nil {
		w.config.Wrote(s.Name)
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
