package hostinstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/kubecri/replacefile"
)

// Applier carries out plans.
type Applier struct {
	Systemctl Systemctl
	// Ready returns an error as long as what is awaited of a unit does not hold, which
	// was started at the time or later. A Fatal one ends the wait.
	Ready func(ctx context.Context, p Plan, unit string, what Await, since time.Time) error
	// Timeout bounds each wait, 60 s when 0.
	Timeout time.Duration
	// Executable is the program that is put at Program.
	Executable string
	// Disk is how files are replaced. They are on the disk before the commands that have
	// them read.
	Disk replacefile.Disk
	// Out gets a line a step.
	Out io.Writer
}

// Systemctl runs systemctl and returns what it prints.
type Systemctl func(ctx context.Context, args ...string) (string, error)

// Fatal is an error of Applier.Ready that waiting does not mend.
type Fatal struct{ error }

const (
	defaultTimeout = 60 * time.Second
	pollInterval   = 250 * time.Millisecond
	// undoneTimeout bounds what undoing may take after ctx is done, as by Ctrl-C.
	undoneTimeout = 3 * time.Minute
)

// Apply carries out the plan. When a stage fails, or ctx is done, it undoes all stages
// that it began, the last one first, and returns why; when undoing fails too, the
// error says what is left to do by hand. A Final stage is completed by the next run.
func (a Applier) Apply(ctx context.Context, p Plan) error {
	for i, s := range p.Stages {
		err := a.do(ctx, p, s)
		if err == nil {
			continue
		}
		if s.Final {
			return fmt.Errorf("%w; the kubelet uses %s. Run this again for the rest", err, p.Endpoint)
		}
		fmt.Fprintf(a.Out, "FAILED: %v\nUndoing what was done:\n", err)
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoneTimeout)
		defer cancel()
		for _, done := range slices.Backward(p.Stages[:i+1]) {
			if failed := a.undo(undoing, p, done); failed != nil {
				return fmt.Errorf("%w; and undoing it failed: %w. Have the kubelet use %s, restart it, and run this again", err, failed, p.RuntimeEndpoint)
			}
		}
		return fmt.Errorf("%w; all was undone", err)
	}
	return remove(saved(Program)) // also what an interrupted run has left
}

// remove removes a file; that it is not there is no error.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a Applier) do(ctx context.Context, p Plan, s Stage) error {
	if err := a.run(ctx, s.Before); err != nil {
		return err
	}
	for _, c := range s.Changes {
		if err := a.change(c.Path, c.Before, c.After); err != nil {
			return err
		}
	}
	since := time.Now()
	if err := a.run(ctx, s.Commands); err != nil {
		return err
	}
	return a.await(ctx, p, s.Unit, s.Await, since)
}

func (a Applier) undo(ctx context.Context, p Plan, s Stage) error {
	// A unit that was not there yet cannot be stopped: what counts comes after.
	if err := a.run(ctx, s.UndoBefore); err != nil {
		fmt.Fprintf(a.Out, "  %v\n", err)
	}
	var errs []error
	for _, c := range slices.Backward(s.Changes) {
		errs = append(errs, a.change(c.Path, c.After, c.Before))
	}
	since := time.Now()
	if err := errors.Join(append(errs, a.run(ctx, s.UndoCommands))...); err != nil {
		return err
	}
	back := p
	back.Endpoint = "" // any: it is the former one again
	return a.await(ctx, back, s.Unit, s.UndoAwait, since)
}

func (a Applier) run(ctx context.Context, commands [][]string) error {
	for _, command := range commands {
		fmt.Fprintf(a.Out, "  systemctl %s\n", strings.Join(command, " "))
		if _, err := a.Systemctl(ctx, command...); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (a Applier) await(ctx context.Context, p Plan, unit string, what Await, since time.Time) error {
	if what == Nothing {
		return nil
	}
	timeout := cmp.Or(a.Timeout, defaultTimeout)
	fmt.Fprintf(a.Out, "  waiting %s: %s\n", what, unit)
	var why error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		why = a.Ready(ctx, p, unit, what, since)
		if fatal, is := errors.AsType[Fatal](why); is {
			return false, fatal
		}
		return why == nil, nil
	})
	if _, fatal := errors.AsType[Fatal](err); fatal {
		return fmt.Errorf("%s: %w", unit, err)
	}
	if err != nil {
		return fmt.Errorf("%s: within %s: %w (journalctl -u %s says more)", unit, timeout, cmp.Or(why, err), unit)
	}
	return nil
}

// change makes the file what it is to be; nil for none. A reader finds the former
// file or the new one. Somebody else's change since the plan was made is an error.
func (a Applier) change(path string, before, after *string) error {
	now, err := content(path)
	switch {
	case err != nil:
		return err
	case ptr.Equal(now, after):
		return nil
	case !ptr.Equal(now, before):
		return fmt.Errorf("%s was changed by somebody else meanwhile: run this again", path)
	case after == nil:
		fmt.Fprintf(a.Out, "  removing %s\n", path)
		return os.Remove(path)
	}
	fmt.Fprintf(a.Out, "  writing %s\n", path)
	if err := a.Disk.MakeDirectory(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if path == Program {
		return a.program(before, after)
	}
	return a.Disk.Edit(path, []byte(*after), 0o644)
}

// saved is where a program that was replaced is kept until all is well.
func saved(path string) string { return path + ".before" }

// program puts Executable into place, or back what was there. The one that is
// replaced may run.
func (a Applier) program(before, after *string) error {
	if old, err := HashFile(saved(Program)); err != nil || old == *after { // undo
		return errors.Join(err, a.Disk.Rename(saved(Program), Program))
	}
	executable, err := os.Open(a.Executable)
	if err != nil {
		return err
	}
	defer executable.Close()
	if before != nil {
		// A link, so that there is a program at any time: the unit may start it.
		if err := errors.Join(os.RemoveAll(saved(Program)), os.Link(Program, saved(Program))); err != nil {
			return err
		}
	}
	return a.Disk.Copy(Program, executable, 0o755)
}

// Forget removes what remembers the install, and where kubecri had its files, when all else is gone.
func Forget() error {
	defer RemoveDirectory()
	return errors.Join(remove(EnvFile), remove(RecordFile))
}

// RemoveDirectory removes the directory of kubecri's configuration if it is empty.
func RemoveDirectory() { _ = os.Remove(filepath.Dir(RecordFile)) }
