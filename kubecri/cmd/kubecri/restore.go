package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
)

// A backup that was restored knows nothing of claims that were made since. Nodes make them again as
// soon as they notice, each for itself; so that no other takes such a slot meanwhile, new slots are
// taken a while later.

const (
	// objectionTime is how long a node waits for others to make their claims again. They notice
	// within restored.lastAsk, start again and read the API server.
	objectionTime = 20 * time.Second
	// restoredFile in --state-dir tells the next process that the former has noticed a restore.
	restoredFile = "restored"
)

// afterRestore is what a process knows of a restore that the former noticed.
type afterRestore struct {
	file  string
	until time.Time // when new slots may be taken
}

// readRestore reads it, and has it forgotten in time.
func readRestore(ctx context.Context, stateDir string) afterRestore {
	a := afterRestore{file: filepath.Join(stateDir, restoredFile)}
	if _, err := os.Stat(a.file); errors.Is(err, fs.ErrNotExist) {
		return a
	}
	a.until = time.Now().Add(objectionTime)
	klog.FromContext(ctx).Info("The API server's data were restored from a backup: new slots are taken when other nodes have had time to claim theirs again", "after", objectionTime)
	time.AfterFunc(objectionTime, func() { _ = os.Remove(a.file) })
	return a
}

// noteRestore tells the next process.
func (a afterRestore) noteRestore() error {
	if a.file == "" {
		return nil
	}
	if err := os.WriteFile(a.file, nil, 0o600); err != nil {
		return fmt.Errorf("note that a backup was restored: %w", err)
	}
	return nil
}

// over waits until new slots may be taken.
func (a afterRestore) over(ctx context.Context) error {
	left := time.Until(a.until)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the API server's data were restored from a backup: new slots are taken in %s, when other nodes have had time to claim theirs again",
			time.Until(a.until).Round(time.Second))
	}
}

// believable waits until a slot that the API server has no claim of is free.
func (c *cluster) believable(ctx context.Context) error {
	if err := c.restored.Settled(ctx); err != nil {
		return err
	}
	return c.over(ctx)
}
