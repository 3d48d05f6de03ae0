package command

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// listing is what a command of many rows shows.
type listing[T any] struct {
	kind    string
	columns []column[T]
	none    string // is said when there is nothing
	rows    func(v *view.View, shows filter) []T
	key     func(*T) string
	missing func(*view.View) error // says which of the names that were given there are not
	wanted  source.Wanted          // what it is made of, without --watch
	refused bool                   // whether workloads whose pods are refused are among the rows, without --watch
}

// show prints the rows, and with --watch those that change until ctx is done.
func show[T any](ctx context.Context, s *selection, l listing[T]) error {
	shows, err := s.shows()
	if err != nil {
		return err
	}
	if !s.watch && !s.only {
		v, err := s.readWith(ctx, l.wanted, l.refused)
		if err != nil {
			return err
		}
		rows, missing := l.rows(v, shows), l.missing(v)
		if len(rows) == 0 && !s.all {
			if err := s.noNamespace(ctx); err != nil {
				return err
			}
		}
		if missing != nil && len(rows) == 0 {
			return missing
		}
		if rows, err = sorted(s, l.kind, rows); err != nil {
			return err
		}
		return errors.Join(printRows(s.options, l.kind, rows, l.columns, l.none), missing)
	}
	from, err := s.source()
	if err != nil {
		return err
	}
	live, err := from.Watch(ctx)
	if err != nil {
		return err
	}
	s.tellMissing(live.Missing())
	w := newWatcher(s, l)
	v := view.New(live.Objects())
	first, err := sorted(s, l.kind, l.rows(v, shows))
	if err != nil {
		return err
	}
	if s.only {
		w.remember(first)
	} else if err := errors.Join(w.update(first), l.missing(v)); err != nil {
		return err
	}
	if s.watched != nil {
		s.watched()
	}
	said := s.tellOutdated("", live.Err())
	for news := (&liveFeed{ctx: ctx, from: from, live: live, clock: clock.RealClock{}}); ; {
		c, more := news.next()
		if !more {
			return nil // the user has seen enough
		}
		said = s.tellOutdated(said, c.outdated)
		if err := w.update(l.rows(c.view, shows)); err != nil {
			return err
		}
	}
}

// tellOutdated says on standard error why what was printed is out of date, or that it is
// no longer, unless that was said last. It returns what was said last.
func (o *options) tellOutdated(said string, err error) string {
	text := ""
	if err != nil {
		text = "Out of date: " + plain(err.Error())
	}
	switch {
	case text == said:
	case text == "":
		fmt.Fprintln(o.streams.ErrOut, "Up to date again.")
	default:
		fmt.Fprintln(o.streams.ErrOut, text)
	}
	return text
}

// watcher prints what changes from one set of rows to the next.
type watcher[T any] struct {
	*selection
	listing[T]
	table *table[change[T]]
	known map[string]T
	order []string // of known, as they were shown
}

// change is a row and what became of it.
type change[T any] struct {
	event string // as of a watch: ADDED, MODIFIED, DELETED
	row   T
}

func newWatcher[T any](s *selection, l listing[T]) *watcher[T] {
	var columns []column[change[T]]
	if s.events {
		columns = append(columns, column[change[T]]{"EVENT", wordColumn, func(c *change[T]) string { return c.event }})
	}
	for _, c := range l.columns {
		columns = append(columns, column[change[T]]{c.name, c.kind, func(of *change[T]) string { return c.value(&of.row) }})
	}
	return &watcher[T]{selection: s, listing: l, known: map[string]T{}, table: newTable(s.streams.Out, columns, s.output == "wide", !s.noHeaders, s.lineWidth())}
}

// update prints the rows that are new, have changed or have gone, in this order.
func (w *watcher[T]) update(rows []T) error {
	changes := w.changes(rows)
	w.remember(rows)
	if w.options.table() {
		if len(changes) > 0 {
			w.table.print(changes)
		}
		return nil
	}
	for i := range changes {
		if w.events {
			inner, err := object(w.kind, &changes[i].row)
			if err != nil {
				return err
			}
			if err := w.printObject("WatchEvent", map[string]any{"type": changes[i].event, "object": inner.Object}); err != nil {
				return err
			}
		} else if err := w.printObject(w.kind, &changes[i].row); err != nil {
			return fmt.Errorf("print %s: %w", w.kind, err)
		}
	}
	return nil
}

func (w *watcher[T]) changes(rows []T) []change[T] {
	var all []change[T]
	now := map[string]bool{}
	for i := range rows {
		k := w.key(&rows[i])
		now[k] = true
		before, there := w.known[k]
		switch {
		case !there:
			all = append(all, change[T]{"ADDED", rows[i]})
		case !reflect.DeepEqual(before, rows[i]):
			all = append(all, change[T]{"MODIFIED", rows[i]})
		}
	}
	for _, k := range w.order {
		if !now[k] {
			all = append(all, change[T]{"DELETED", w.known[k]})
		}
	}
	return all
}

func (w *watcher[T]) remember(rows []T) {
	clear(w.known)
	w.order = w.order[:0]
	for i := range rows {
		k := w.key(&rows[i])
		w.known[k] = rows[i]
		w.order = append(w.order, k)
	}
}
