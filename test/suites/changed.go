package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

const day = 24 * 60 * 60

// changed returns what the working tree has that the branch had not a day before its last commit, or since base, which
// may also be a range <commit>..<commit>.
func changed(base string) change {
	if base == "" {
		var err error
		if base, err = aDayAgo(); err != nil {
			return change{Doubt: err.Error()}
		}
	}
	tracked, err := git("diff", "--name-only", "--no-renames", base)
	if err != nil {
		return change{Doubt: err.Error()}
	}
	files := paths(tracked)
	if !strings.Contains(base, "..") {
		added, err := git("ls-files", "--others", "--exclude-standard")
		if err != nil {
			return change{Doubt: err.Error()}
		}
		files = append(files, paths(added)...)
	}
	slices.Sort(files)
	return change{Since: base, Files: files}
}

// aDayAgo returns the last commit of the branch that is at least a day older than the branch's last one. A commit that
// came with a merge since is not the branch's: what was merged is new.
func aDayAgo() (string, error) {
	last, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return "", err
	}
	seconds, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		return "", err
	}
	base, err := git("rev-list", "-1", "--first-parent", "--abbrev-commit", fmt.Sprintf("--before=%d", seconds-day), "HEAD")
	if err == nil && base == "" {
		err = fmt.Errorf("git has no commit from a day before the last")
	}
	return base, err
}

// git runs git and returns what it prints.
func git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-c", "core.quotePath=false"}, args...)...).Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			first, _, _ := strings.Cut(string(exit.Stderr), "\n")
			err = errors.New(first)
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// paths are those that git has printed, each in a line.
func paths(printed string) []string {
	return strings.FieldsFunc(printed, func(r rune) bool { return r == '\n' })
}
