package view

import (
	"fmt"
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

func because(problems []string) string {
	if len(problems) == 0 {
		return ""
	}
	return ": " + strings.Join(problems, "; ")
}
