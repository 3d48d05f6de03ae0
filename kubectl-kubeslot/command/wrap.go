package command

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// leastWidth is that of a screen; what is drawn on a narrower one goes beyond it.
const leastWidth = 20

// terminalWidth is how many characters a line of the output has; 0 when that is not known.
func (o *options) terminalWidth() int {
	out, ok := o.streams.Out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(out.Fd()))
	if err != nil || width == 0 {
		return 0
	}
	return max(width, leastWidth)
}

// lineWidth is how long printed lines may be; 0 for any length.
func (o *options) lineWidth() int {
	if o.output == "wide" {
		return 0
	}
	return o.width()
}

// broken is the text with lines that are broken where they are too long.
func (o *options) broken(text string) string {
	width := o.lineWidth()
	if width == 0 {
		return text
	}
	return strings.Join(wrapped(strings.Split(text, "\n"), width), "\n")
}

// wrapped breaks lines between words, so that none is longer than the width. What goes on
// stands further right than its line begins.
func wrapped(lines []string, width int) []string {
	var all []string
	for _, line := range lines {
		indent := min(len(line)-len(strings.TrimLeft(line, " "))+4, width/2)
		all = append(all, wrapLine(line, width, indent)...)
	}
	return all
}

// wrapLine breaks a line, which goes on behind the indent. A word is broken when it is longer than
// what a line has place for.
func wrapLine(line string, width, indent int) []string {
	var lines []string
	for runes := []rune(line); ; {
		if len(runes) <= width {
			return append(lines, string(runes))
		}
		at := width
		for i := width; i > indent; i-- {
			if runes[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(runes[:at]), " "))
		runes = []rune(strings.Repeat(" ", indent) + strings.TrimLeft(string(runes[at:]), " "))
	}
}
