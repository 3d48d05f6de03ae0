package command

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// Styles of a terminal; bubbletea leaves out what it cannot show, or NO_COLOR forbids.
const (
	bold, reverse, red, dim, reset = "\x1b[1m", "\x1b[7m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
)

// View implements tea.Model.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "kubectl kubeslot top"
	return v
}

// screen is what is drawn, a line each, none longer than the screen is wide.
func (m *topModel) screen() []string {
	lines := []string{m.summary(), m.tabs()}
	if m.opened == nil {
		from := min(m.top, len(m.rows))
		rows := m.rows[from:min(from+m.space(), len(m.rows))]
		drawn := m.draw(rows)
		lines = append(lines, bold+m.cut(drawn[0])+reset)
		for i, row := range rows {
			line := m.cut(drawn[i+1])
			switch {
			case from+i == m.cursor:
				line = reverse + line + reset
			case row.bad:
				line = red + line + reset
			}
			lines = append(lines, line)
		}
	} else {
		lines = append(lines, bold+m.cut("Pod "+plain(m.opened.podNamespace)+"/"+plain(m.opened.pod))+reset)
		from := min(m.top, len(m.lines))
		for _, line := range m.lines[from:min(from+m.space(), len(m.lines))] {
			lines = append(lines, m.cut(line))
		}
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return append(lines, dim+m.cut(m.footer())+reset)
}

func (m *topModel) cut(line string) string { return short(line, m.width) }

// summary counts what is shown in all. The bar says nothing new: it is left out first.
func (m *topModel) summary() string {
	c := m.counts
	text := fmt.Sprintf("kubeslot  %d slots, %d held, %d free", c.slots, c.slots-c.free, c.free)
	rest := fmt.Sprintf("  %d pods wait", c.waiting)
	if c.problems > 0 {
		rest += fmt.Sprintf("  %d Configurations with problems", c.problems)
	}
	if drawn := "  " + bar(c.slots-c.free, c.slots, 20); len(text+drawn+rest) <= m.width {
		text += drawn
	}
	return bold + m.cut(text+rest) + reset
}

func (m *topModel) tabs() string {
	var all []string
	for p := range pages {
		name := fmt.Sprintf("%d %s", p+1, p)
		if p == m.page {
			name = "[" + name + "]"
		}
		all = append(all, name)
	}
	text := strings.Join(all, "  ")
	if m.of != "" {
		text += "  of " + m.of
	}
	if m.filter != "" || m.typing {
		text += "  /" + plain(m.filter)
	}
	return m.cut(text)
}

func (m *topModel) footer() string {
	where := ""
	if m.outdated != nil {
		where = "OUT OF DATE: " + plain(m.outdated.Error()) + "  "
	}
	if m.opened == nil && len(m.rows) > 0 {
		where += fmt.Sprintf("%d of %d  ", m.cursor+1, len(m.rows))
	}
	if len(m.missing) > 0 {
		where += "you may not list " + strings.Join(m.missing, ", ") + "  "
	}
	return where + "Tab page  Enter open  Esc back  / filter  q end"
}

// bar shows how much of all is used.
func bar(used, of, width int) string {
	if of == 0 {
		return "[" + strings.Repeat(" ", width) + "]"
	}
	n := (used*width + of - 1) / of
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}
