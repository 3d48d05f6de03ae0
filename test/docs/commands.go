// Package docs reads the commands of the pages in docs/, so that tests run what a reader
// types. Its own test tells which test runs which command, and finds one that none runs.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// A code block is indented by four or more, within a list by more; a continued line is
	// one with the next.
	typed     = regexp.MustCompile(`^ {4,}((?:make|helm|kubectl|kubeadm|kubecri|\./kubecri|cat) .*)$`)
	comment   = regexp.MustCompile(`\s+# .*$`)
	continued = regexp.MustCompile(`\\\n\s*`)
)

// Commands returns the commands of a page's code blocks, each in one line, without comments.
// The page is a path within the repository whose root this is.
func Commands(root, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	var commands []string
	for line := range strings.Lines(continued.ReplaceAllString(string(text), "")) {
		if m := typed.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			commands = append(commands, comment.ReplaceAllString(m[1], ""))
		}
	}
	return commands, nil
}

// Command returns the one command of a page that begins so.
func Command(root, page, begin string) (string, error) {
	commands, err := Commands(root, page)
	if err != nil {
		return "", err
	}
	found := map[string]bool{}
	command := ""
	for _, c := range commands {
		if strings.HasPrefix(c, begin) {
			found[c], command = true, c
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %d commands that begin with %q, want one", page, len(found), begin)
	}
	return command, nil
}

// Block returns the page's code block whose first line begins so, without its indentation.
func Block(root, page, begin string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return "", err
	}
	block, indent := "", ""
	for line := range strings.Lines(string(text)) {
		code := strings.TrimLeft(line, " ")
		if block == "" && strings.HasPrefix(code, begin) {
			indent = line[:len(line)-len(code)]
		}
		switch {
		case indent == "":
		case strings.HasPrefix(line, indent):
			block += strings.TrimPrefix(line, indent)
		default:
			return block, nil
		}
	}
	if block == "" {
		return "", fmt.Errorf("%s has no block that begins with %q", page, begin)
	}
	return block, nil
}
