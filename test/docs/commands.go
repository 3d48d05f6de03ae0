// Package docs reads the commands of the pages in docs/, so that tests run what a reader
// types. Its own test finds a command that no test runs.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs are those whose commands readers type.
const programs = `(?:make|helm|kubectl|kubeadm|kubecri|\./kubecri|kube-scheduler|go|cat|git|gh|base64|openssl|cosign|sha256sum|jq|tar|diff)`

var (
	// A code block is indented by four or more, within a list by more; a continued line is
	// one with the next.
	block     = regexp.MustCompile(`^ {4,}(` + programs + ` .*)$`)
	fenced    = regexp.MustCompile(`^ *(` + programs + ` .*)$`)
	inline    = regexp.MustCompile("`(" + programs + " [^`]*)`")
	comment   = regexp.MustCompile(`\s+# .*$`)
	continued = regexp.MustCompile(`\\\n\s*`)
)

// Commands returns the commands of a page in its order, each in one line, without comments
// or a leading ./, and once: those of its code blocks, and those between backticks in its text. One that only
// begins another of the page, as `helm upgrade` does, is taken for a mention of that. The page
// is a path within the repository whose root this is.
func Commands(root, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	return commands(string(text)), nil
}

func commands(page string) []string {
	var found []string
	add := func(command string) {
		command = strings.TrimPrefix(strings.Join(strings.Fields(comment.ReplaceAllString(command, "")), " "), "./")
		if !slices.Contains(found, command) {
			found = append(found, command)
		}
	}
	prose := "" // what has been read of a paragraph
	flush := func() {
		for _, m := range inline.FindAllStringSubmatch(prose, -1) {
			add(m[1])
		}
		prose = ""
	}
	fence := ""
	for line := range strings.Lines(continued.ReplaceAllString(page, "") + "\n\n") {
		line = strings.TrimRight(line, "\n")
		code := block
		if fence != "" {
			code = fenced
		}
		switch m := code.FindStringSubmatch(line); {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			flush()
			if fence != "" {
				fence = ""
			} else {
				fence = strings.TrimSpace(line)
			}
		case m != nil && fence != "```yaml":
			flush()
			add(m[1])
		case fence != "":
		case strings.TrimSpace(line) == "":
			flush()
		default:
			prose += line + " "
		}
	}
	return slices.DeleteFunc(slices.Clone(found), func(c string) bool {
		return slices.ContainsFunc(found, func(other string) bool { return c != other && Begins(c, other) })
	})
}

// Begins reports whether the words of the one command begin the other.
func Begins(begin, command string) bool { return strings.HasPrefix(command+" ", begin+" ") }

// Command returns the one command of a page that begins with these words.
func Command(root, page, begin string) (string, error) {
	commands, err := Commands(root, page)
	if err != nil {
		return "", err
	}
	commands = slices.DeleteFunc(commands, func(c string) bool { return !Begins(begin, c) })
	if len(commands) != 1 {
		return "", fmt.Errorf("%s has %d commands that begin with %q, want one: %q", page, len(commands), begin, commands)
	}
	return commands[0], nil
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

// Objects returns the page's blocks of YAML, without their indentation.
func Objects(root, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	var objects []string
	object, indent, in := "", "", false
	for line := range strings.Lines(string(text)) {
		code := strings.TrimLeft(line, " ")
		switch {
		case in && strings.HasPrefix(code, "```"):
			objects, in = append(objects, object), false
		case in:
			object += strings.TrimPrefix(line, indent)
		case strings.HasPrefix(code, "```yaml"):
			object, indent, in = "", line[:len(line)-len(code)], true
		}
	}
	return objects, nil
}
