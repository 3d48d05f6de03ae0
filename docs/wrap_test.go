package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	item     = regexp.MustCompile(`^\s*([-*+]|\d+[.)])\s+`)
	codeSpan = regexp.MustCompile("`[^`\n]{1,90}`")
	// A line that begins so would be a list, a heading or a table.
	begins = regexp.MustCompile(`^([-+*>|=]|#+|\d+[.)]|\|.*|>.*)$`)
	// An indented line that begins so would be read as a command that a reader types, by package
	// test/docs.
	program = regexp.MustCompile(`^(make|helm|kubectl|kubeadm|kubecri|\./kubecri|kube-scheduler|go|cat)$`)
)

// wrap returns the page with those paragraphs and items of lists wrapped that have a line which
// is too long. Code, tables and headings stay as they are; a piece of code in a line is not
// broken.
func wrap(page string) string {
	var out, paragraph []string
	first := "" // what the paragraph's first line begins with: an indentation, or that of an item
	flush := func() {
		if slices.ContainsFunc(paragraph, func(l string) bool { return utf8.RuneCountInString(l) > columns }) {
			text := strings.Join(append([]string{strings.TrimPrefix(paragraph[0], first)}, paragraph[1:]...), "\n")
			paragraph = fill(first, strings.Repeat(" ", utf8.RuneCountInString(first)), text)
		}
		out, paragraph = append(out, paragraph...), nil
	}
	fenced, code, blank := false, false, true
	for _, line := range strings.Split(page, "\n") {
		text := strings.TrimSpace(line)
		isItem := item.MatchString(line)
		code = !fenced && paragraph == nil && strings.HasPrefix(line, "    ") && (code || blank && !isItem) ||
			code && text == ""
		switch {
		case strings.HasPrefix(text, "```"):
			flush()
			fenced = !fenced
			out = append(out, line)
		case fenced || code || text == "" || strings.ContainsAny(text[:1], "|#<>"):
			flush()
			out = append(out, line)
		case isItem || paragraph == nil:
			flush()
			first = line[:len(line)-len(strings.TrimLeft(line, " "))]
			if isItem {
				first = item.FindString(line)
			}
			paragraph = []string{line}
		default:
			paragraph = append(paragraph, line)
		}
		blank = text == ""
	}
	flush()
	return strings.Join(out, "\n")
}

// fill breaks a text into lines, of which the first begins with one indentation, and the others
// with another.
func fill(first, rest, text string) []string {
	const space = "\x00" // one that is not broken
	text = codeSpan.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(code string) string {
		return strings.ReplaceAll(code, " ", space)
	})
	var lines []string
	indent, words := first, []string(nil)
	end := func(carried ...string) {
		for len(words) > 1 && (begins.MatchString(carried[0]) || len(rest) >= 4 && program.MatchString(carried[0])) {
			last := len(words) - 1
			carried, words = append([]string{words[last]}, carried...), words[:last]
		}
		lines = append(lines, strings.ReplaceAll(indent+strings.Join(words, " "), space, " "))
		indent, words = rest, carried
	}
	for _, word := range strings.Fields(text) {
		if len(words) > 0 && utf8.RuneCountInString(indent+strings.Join(words, " ")+" "+word) > columns {
			end(word)
		} else {
			words = append(words, word)
		}
	}
	return append(lines, strings.ReplaceAll(indent+strings.Join(words, " "), space, " "))
}

func TestWrap(t *testing.T) {
	word := strings.Repeat("x", 40)
	long := strings.Repeat(word+" ", 2)
	for name, tc := range map[string]struct{ page, want string }{
		"short":                {"a\nb\n", "a\nb\n"},
		"a paragraph":          {long + word + "\nnext\n", long[:81] + "\n" + word + " next\n"},
		"an item":              {"- " + long + word, "- " + long[:81] + "\n  " + word},
		"the next item":        {"1. " + long + word + "\n2. b", "1. " + long[:81] + "\n   " + word + "\n2. b"},
		"code in a line":       {long + "`make the " + word + "`", long[:81] + "\n`make the " + word + "`"},
		"no list by accident":  {long + "aaaaaaaaaaaaaaaaaa - " + word, long[:81] + "\naaaaaaaaaaaaaaaaaa - " + word},
		"a block":              {"a\n\n    b\n      - " + long + word + "\n\n    c", "a\n\n    b\n      - " + long + word + "\n\n    c"},
		"a fence and a table":  {"```\n" + long + word + "\n```\n| " + long + word + " |", "```\n" + long + word + "\n```\n| " + long + word + " |"},
		"an item's paragraphs": {"- a\n\n  " + long + word, "- a\n\n  " + long[:81] + "\n  " + word},
	} {
		got := wrap(tc.page)
		if want := strings.ReplaceAll(tc.want, " \n", "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		} else if again := wrap(got); again != got {
			t.Errorf("%s: wrapped again it is\n%s", name, again)
		}
	}
}
