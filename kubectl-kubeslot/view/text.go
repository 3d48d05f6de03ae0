package view

import (
	"fmt"
	"slices"
	"strings"
)

func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// ofNodes names the first of the nodes.
func ofNodes(names []string) string {
	if len(names) == 1 {
		return "node " + names[0]
	}
	return "nodes " + some(names, 3)
}

// because gives the first of the problems as a reason.
func because(problems []string) string {
	const most = 3
	if left := len(problems) - most; left > 0 {
		problems = append(slices.Clone(problems[:most]), fmt.Sprintf("and %d more", left))
	}
	if len(problems) == 0 {
		return ""
	}
	return ": " + strings.Join(problems, "; ")
}
