package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/kubecri/replacefile"
	"github.com/kubeslot/kubeslot/types/client/restored"
)

// A backup that was restored knows nothing of claims that were made since. Nodes make them again as
// soon as they notice, each for itself; so that no other takes such a slot meanwhile, new slots are
// taken a while later.

const (
	// restoredFile in --state-dir tells the next process that the former has noticed a restore.
	restoredFile = cleanup.RestoredFile
	// seenFile in --state-dir has the resource version that the process has seen last, for one that
	// is started when the API server is away. It is written every seenEvery, if it is another.
	seenFile  = cleanup.SeenFile
	seenEvery = time.Minute
	// compareEvery is how often the API server is asked for its own, until it answers.
	compareEvery = 2 * time.Second
)

// afterRestore is what a process knows of a restore that the former noticed, or could not notice.
// The zero value knows of none. Safe for concurrent use.
type afterRestore struct {
	dir      string
	former   string        // what the former process has seen last; "" if it is not known
	compared chan struct{} // closed when the API server's is known; nil without former

	mu    sync.Mutex
	until time.Time // when new slots may be taken
}

// readRestore reads it, and has it forgotten in time.
func readRestore(ctx context.Context, stateDir string) *afterRestore {
	a := &afterRestore{dir: stateDir}
	if _, err := os.Stat(filepath.Join(stateDir, restoredFile)); err == nil {
		a.wait(ctx)
	}
	if seen, err := os.ReadFile(filepath.Join(stateDir, seenFile)); err == nil && len(seen) > 0 {
		a.former, a.compared = string(seen), make(chan struct{})
	}
	return a
}

// wait has new slots taken a while later, also by the next process.
func (a *afterRestore) wait(ctx context.Context) {
	klog.FromContext(ctx).Info("The API server's data were restored from a backup: new slots are taken when other nodes have had time to claim theirs again", "after", restored.ObjectionTime)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Now().Add(restored.ObjectionTime)
	time.AfterFunc(restored.ObjectionTime, func() { _ = os.Remove(filepath.Join(a.dir, restoredFile)) })
}

// noteRestore tells the next process.
func (a *afterRestore) noteRestore() error {
	if a.dir == "" {
		return nil
	}
	if err := replacefile.Write(filepath.Join(a.dir, restoredFile), nil, 0o600); err != nil {
		return fmt.Errorf("note that a backup was restored: %w", err)
	}
	return nil
}

// follow compares what the former process has seen with what the API server has, and from then on keeps
// what this process sees. current asks the API server, seen does not. It ends with ctx.
func (a *afterRestore) follow(ctx context.Context, current func(context.Context) (string, error), seen func() string) {
	logger := klog.FromContext(ctx)
	if a.compared != nil {
		err := wait.PollUntilContextCancel(ctx, compareEvery, true, func(ctx context.Context) (bool, error) {
			now, err := current(ctx)
			if err == nil {
				a.compare(ctx, now)
			}
			return err == nil, nil
		})
		if err != nil {
			return
		}
		close(a.compared)
	}
	kept := ""
	wait.UntilWithContext(ctx, func(context.Context) {
		now := seen()
		if a.dir == "" || now == "" || now == "0" || now == kept {
			return
		}
		if err := replacefile.Write(filepath.Join(a.dir, seenFile), []byte(now), 0o600); err != nil {
			logger.Error(err, "Cannot keep the resource version seen: a process that starts when the API server is away may not notice that a backup is restored")
		}
		kept = now
	}, seenEvery)
}

// compare has new slots wait if the API server's data are older than what the former process has seen.
func (a *afterRestore) compare(ctx context.Context, now string) {
	logger := klog.FromContext(ctx)
	was, err := restored.Between(a.former, now)
	if err != nil {
		logger.Error(err, "Cannot tell whether a backup was restored since the former process", "seen", a.former, "current", now)
	}
	if !was {
		return
	}
	if err := a.noteRestore(); err != nil {
		logger.Error(err, "The next process may take slots at once")
	}
	a.wait(ctx)
}

// over waits until new slots may be taken.
func (a *afterRestore) over(ctx context.Context) error {
	if a.compared != nil {
		select {
		case <-a.compared:
		case <-ctx.Done():
			return fmt.Errorf("the API server has not yet said whether its data were restored from a backup: %w", ctx.Err())
		}
	}
	a.mu.Lock()
	until := a.until
	a.mu.Unlock()
	return restored.AwaitObjections(ctx, until)
}

// believable waits until a slot that the API server has no claim of is free.
func (c *cluster) believable(ctx context.Context) error {
	if err := c.Restored.Settled(ctx); err != nil {
		return err
	}
	return c.over(ctx)
}

// followVersions follows the resource version of the Node, which is that of all objects.
func (c *cluster) followVersions(ctx context.Context) {
	this := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.node).String(), Limit: 1}
	c.follow(ctx, func(ctx context.Context) (string, error) {
		list, err := c.Kube.CoreV1().Nodes().List(ctx, this)
		if err != nil {
			return "", fmt.Errorf("list nodes: %w", err)
		}
		return list.ResourceVersion, nil
	}, c.Nodes.Informer().LastSyncResourceVersion)
}
