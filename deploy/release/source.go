package release

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// source is the commit that a release is made of.
type source struct {
	commit string
	time   time.Time
}

// readSource refuses a tree with changes, and a version whose tags are of another commit.
func readSource(ctx context.Context, root, version string) (source, error) {
	commit, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return source{}, fmt.Errorf("a release is made in a clone: %w", err)
	}
	changed, err := git(ctx, root, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return source{}, err
	}
	// What the releaser's own git ignores would be in the chart, and in programs that embed its folder.
	others, err := git(ctx, root, "ls-files", "--others", "--exclude-per-directory=.gitignore")
	if err != nil {
		return source{}, err
	}
	for file := range strings.Lines(others) {
		changed += "\n?? " + strings.TrimSpace(file)
	}
	if changed != "" {
		const want = "the tree has changes, and a release is made of a commit:\n%s"
		return source{}, fmt.Errorf(want, strings.TrimSpace(changed))
	}
	for _, tag := range []string{version, "types/" + version} {
		at, err := git(ctx, root, "rev-parse", "--quiet", "--verify", "refs/tags/"+tag+"^{commit}")
		if err == nil && at != commit {
			const elsewhere = "tag %s is at commit %.12s, and this is %.12s: check out the tag, or take another version"
			return source{}, fmt.Errorf(elsewhere, tag, at, commit)
		}
	}
	seconds, err := git(ctx, root, "log", "-1", "--format=%ct")
	if err != nil {
		return source{}, err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("time of commit %s: %w", commit, err)
	}
	return source{commit, time.Unix(at, 0).UTC()}, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) && len(failed.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
