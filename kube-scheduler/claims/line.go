package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// maxOperations is when a patch takes no further request. The API server allows
// ten thousand operations.
const maxOperations = 1000

// plan returns the patch that is to be sent, empty when there is nothing to do. The
// Instance is nil when it is gone.
type plan func(in *akriv0.Instance, k knowledge) ([]operation, error)

// knowledge is what a plan rests on.
type knowledge struct {
	live bool // the Instance was read just now, and not seen some time ago
	lost bool // the answer to an attempt was lost, which may have been applied
}

// errStale asks for the Instance as it is now.
var errStale = errors.New("the Instance may have changed")

// request is a change to an Instance that is to be written.
type request struct {
	in       *akriv0.Instance // as last seen
	plan     plan
	releases bool

	ctx      context.Context
	done     chan error // takes the answer, and may be left unread
	known    knowledge
	alone    bool  // it was refused with others, any of which may be the reason
	refusals int   // of it alone
	failure  error // of the last attempt
}

// line is the requests for one Instance that are being served.
type line struct {
	*Writer
	instance types.NamespacedName
	open     []*request // not answered yet
	stale    bool       // the Instance is to be read before the next patch
}

// write sends the patch that the request's plan makes. When somebody else wrote in
// between, or the answer was lost, the plan is asked again, about the Instance as it
// is now.
//
// A patch of an Instance that many nodes reach takes the API server milliseconds,
// and it starts anew when another patch was faster. So patches of one Instance are
// sent one at a time, and requests that come meanwhile are sent together. That is
// as if they were sent one after the other, since each tests what those before it
// leave, except that all are applied or none.
func (w *Writer) write(ctx context.Context, r *request) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.ctx, r.done = ctx, make(chan error, 1)
	key := types.NamespacedName{Namespace: r.in.Namespace, Name: r.in.Name}
	w.mu.Lock()
	if w.waiting == nil {
		w.waiting = map[types.NamespacedName][]*request{}
	}
	waiting, served := w.waiting[key]
	w.waiting[key] = append(waiting, r)
	w.mu.Unlock()
	if !served {
		go (&line{Writer: w, instance: key}).serve()
	}
	return <-r.done
}

// serve ends when all requests for the Instance are answered.
func (l *line) serve() {
	pace := backoff
	for l.join() {
		if l.stale {
			if err := l.read(); err != nil {
				pause(l.open[0].ctx, &pace)
				continue
			}
		}
		group, patch := l.choose()
		if len(group) == 0 {
			continue
		}
		left, refused, err := l.send(group[0].ctx, l.instance, patch)
		if err == nil {
			pace = backoff
			if slices.ContainsFunc(group, func(r *request) bool { return r.releases }) {
				l.Seen(left)
			}
		}
		for _, r := range group {
			l.settle(r, refused, err, len(group) == 1)
		}
		if l.stale = err != nil; l.stale && len(l.open) > 0 {
			pause(l.open[0].ctx, &pace)
		}
	}
}

// join lets those in who wait, and gives up those who have no more time. It reports
// whether anybody is left.
func (l *line) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, l.waiting[l.instance]...)
	l.open = slices.DeleteFunc(l.open, func(r *request) bool {
		if r.ctx.Err() == nil {
			return false
		}
		r.done <- cmp.Or(r.failure, fmt.Errorf("write deviceUsage of Instance %s: %w", l.instance, r.ctx.Err()))
		return true
	})
	if len(l.open) == 0 {
		delete(l.waiting, l.instance)
		return false
	}
	l.waiting[l.instance] = nil
	return true
}

// read asks the API server for the Instance.
func (l *line) read() error {
	in, err := l.get(l.open[0].ctx, l.instance)
	switch {
	case err == nil:
		l.Seen(in)
	case apierrors.IsNotFound(err):
		in = nil
	default:
		for _, r := range l.open {
			r.failure = fmt.Errorf("read Instance %s again: %w", l.instance, err)
		}
		return err
	}
	l.stale = false
	for _, r := range l.open {
		r.in, r.known.live = in, true
	}
	return nil
}

// choose returns those who are next, and the patch for them all. It answers those
// who need none.
func (l *line) choose() (group []*request, patch []operation) {
	l.open = slices.DeleteFunc(l.open, func(r *request) bool {
		operations, err := r.plan(r.in, r.known)
		switch {
		case errors.Is(err, errStale):
			l.stale = true
		case err != nil || len(operations) == 0:
			r.done <- err
			return true
		case len(group) == 0 || !r.alone && !group[0].alone && len(patch) < maxOperations:
			group, patch = append(group, r), append(patch, operations...)
		}
		return false
	})
	if l.stale {
		return nil, nil
	}
	return group, patch
}

// settle answers a request that was sent, or puts it last. A refusal of several
// says nothing of any one of them: each is sent alone then.
func (l *line) settle(r *request, refused bool, err error, alone bool) {
	l.open = slices.DeleteFunc(l.open, func(o *request) bool { return o == r })
	if err == nil {
		r.done <- nil
		return
	}
	r.failure = fmt.Errorf("write deviceUsage of Instance %s: %w", l.instance, err)
	denied := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	if denied {
		r.failure = fmt.Errorf("write deviceUsage of Instance %s (kubectl apply -k deploy/scheduler-claims gives the right): %w", l.instance, err)
	}
	switch {
	case !refused && !denied:
		r.known.lost = true
	case !alone:
		r.alone = true
	case denied || r.refusals+1 == maxRefusals:
		r.done <- r.failure
		return
	default:
		r.refusals++
	}
	l.open = append(l.open, r)
}
