package command

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

func (o *options) top() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "A live view in the terminal: Configurations, Instances, slots, and why pods wait",
		Long: `top shows Configurations, Instances, slots and pods, and follows them. What is
least important is left out on a narrow screen. Keys:
  1 2 3 4, Tab     Configurations, Instances, Slots, Pods
  arrows, PgUp/Dn  move; Enter opens: the Instances of a Configuration, the slots of an
                   Instance, the pod of a slot, and of a pod why it waits; Esc goes back
  /                show the lines that have a text
  q                end`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	s := &selection{options: o}
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "show those of all namespaces")
	cmd.Flags().StringVarP(&s.selector, "selector", "l", "", "show those that have these labels (such as zone=yard,zone!=gate)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		shows, err := s.shows()
		if err != nil {
			return err
		}
		if out, ok := o.streams.Out.(*os.File); !ok || !term.IsTerminal(int(out.Fd())) {
			return errors.New("top needs a terminal; `kubectl kubeslot slots --watch` prints what changes")
		}
		from, err := o.source()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		live, err := from.Watch(ctx)
		if err != nil {
			return err
		}
		m := newTop(o.now, shows, s.all)
		m.missing, m.feed = live.Missing(), &liveFeed{ctx: ctx, from: from, live: live, clock: clock.RealClock{}}
		m.outdated = live.Err()
		m.setView(view.New(live.Objects()))
		_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.streams.In), tea.WithOutput(o.streams.Out)).Run()
		if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) && cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	return cmd
}

// feed is where the model gets news from. Its methods block.
type feed interface {
	// next waits for a change; false at the end.
	next() (changed, bool)
	// pod describes a pod, with its events.
	pod(v *view.View, namespace, name string) (view.Pod, bool)
}

// liveFeed follows the cluster. After a view it rests four times as long as that took, at
// most maxRest: in a large and busy cluster top does not take more than a fifth of a core.
type liveFeed struct {
	ctx   context.Context
	from  *source.Source
	live  *source.Live
	clock clock.Clock
	rest  time.Duration
}

const maxRest = 5 * time.Second

func (f *liveFeed) next() (changed, bool) {
	select {
	case <-f.ctx.Done():
		return changed{}, false
	case <-f.clock.After(f.rest):
	}
	select {
	case <-f.ctx.Done():
		return changed{}, false
	case <-f.live.Changed():
	}
	begin := f.clock.Now()
	c := changed{view: view.New(f.live.Objects()), outdated: f.live.Err()}
	c.view.Taken() // which are found now, and not while a key waits
	f.rest = min(4*f.clock.Since(begin), maxRest)
	return c, true
}

func (f *liveFeed) pod(v *view.View, namespace, name string) (view.Pod, bool) {
	ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
	defer cancel()
	events, _ := f.from.Events(ctx, namespace, name) // without them it says what it can
	return v.Pod(namespace, name, events...)
}
