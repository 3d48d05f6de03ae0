package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ourLdflags have our programs say of which Kubernetes they are, as Makefile does, and of
// which commit.
func ourLdflags(ctx context.Context, repoRoot string) (string, error) {
	goMod, err := os.ReadFile(filepath.Join(repoRoot, "test/cluster/upstream/kubernetes/go.mod"))
	if err != nil {
		return "", err
	}
	flags := fmt.Sprintf(kubernetesVersion("36"), requiredVersion(goMod, "k8s.io/kubernetes"))
	if commit := commitOf(ctx, repoRoot); commit != "" {
		flags += " -X " + modulePath + "/version.commit=" + commit
	}
	return flags, nil
}

// commitOf is the checkout's commit, with -dirty if files were changed; empty where there
// is no git or no repository. (go build's own stamp fails there, and in a checkout of
// another user.)
func commitOf(ctx context.Context, repoRoot string) string {
	git := func(args ...string) (string, error) {
		args = append([]string{"-c", "safe.directory=" + repoRoot, "-C", repoRoot}, args...)
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	if changed, err := git("status", "--porcelain", "--untracked-files=no"); err == nil && changed != "" {
		commit += "-dirty"
	}
	return commit
}
