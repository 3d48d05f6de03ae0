package command

import (
	"bytes"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// Styles of a terminal; bubbletea leaves out what it cannot show, or NO_COLOR forbids.
const (
	bold, reverse, red, dim, reset = "\x1b[1m", "\x1b[7m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
)

// wideScreen is from how many characters on columns are shown that are else for -o wide.
const wideScreen = 130

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

// summary counts what is shown in all.
func (m *topModel) summary() string {
	c := m.counts
	text := fmt.Sprintf("kubeslot  %d slots, %d held, %d free  %s  %d pods wait", c.slots, c.slots-c.free, c.free, bar(c.slots-c.free, c.slots, 20), c.waiting)
	if c.problems > 0 {
		text += fmt.Sprintf("  %d Configurations with problems", c.problems)
	}
	return bold + m.cut(text) + reset
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

// topPage fills the rows with those of a table. about says what a row is of.
func topPage[T any](m *topModel, rows []T, columns []column[T], about func(*T) topRow) {
	m.rows = make([]topRow, len(rows))
	for i := range rows {
		m.rows[i] = about(&rows[i])
		m.rows[i].at = i
	}
	wide := m.width >= wideScreen
	m.draw = func(of []topRow) []string {
		picked := make([]T, len(of))
		for i := range of {
			picked[i] = rows[of[i].at]
		}
		var text bytes.Buffer
		t := newTable(&text, columns, wide, true, 0)
		copy(t.widths, m.widths)
		t.print(picked)
		m.widths = t.widths
		return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	}
}

func (m *topModel) configurations() {
	var rows []view.Configuration
	for _, c := range m.view.Configurations() {
		if m.shows(c.Namespace, c.Labels) {
			rows = append(rows, c)
		}
	}
	columns := append(configurationColumns(m.all), column[view.Configuration]{})
	at := len(columns) - 2 // before PROBLEM
	columns[at+1] = columns[at]
	columns[at] = column[view.Configuration]{"USED", wordColumn, func(c *view.Configuration) string { return bar(c.Held, c.Slots, 10) }}
	topPage(m, rows, columns, func(c *view.Configuration) topRow {
		return topRow{key: c.Namespace + "/" + c.Name, bad: !c.Ready, configuration: c.Name}
	})
}

func (m *topModel) instances() {
	var rows []view.Instance
	for _, i := range m.view.Instances() {
		if m.shows(i.Namespace, i.Labels) && (m.of == "" || m.of == i.Configuration) {
			rows = append(rows, i)
		}
	}
	topPage(m, rows, instanceColumns(m.all), func(i *view.Instance) topRow {
		return topRow{key: i.Namespace + "/" + i.Name, bad: len(i.Lost)+len(i.Problems) > 0, instance: i.Name}
	})
}

func (m *topModel) slots() {
	var rows []view.Slot
	for _, s := range m.view.Slots() {
		if m.shows(s.InstanceNamespace, s.Labels) && (m.of == "" || m.of == s.Instance || m.of == s.Configuration) {
			rows = append(rows, s)
		}
	}
	topPage(m, rows, slotColumns(m.now, m.all), func(s *view.Slot) topRow {
		return topRow{key: s.Name, podNamespace: s.Namespace, pod: s.Pod}
	})
}

func (m *topModel) pods() {
	var rows []view.Pod
	for _, p := range m.view.Pods() {
		if m.shows(p.Namespace, p.Labels) {
			rows = append(rows, p)
		}
	}
	topPage(m, rows, podColumns(m.now, m.all), func(p *view.Pod) topRow {
		return topRow{key: p.Namespace + "/" + p.Name, bad: len(p.Waits) > 0, podNamespace: p.Namespace, pod: p.Name}
	})
}
