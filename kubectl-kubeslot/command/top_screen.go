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
	shown := m.lines
	if m.opened == nil {
		lines = append(lines, bold+m.cut(m.header)+reset)
		shown = nil
		for i, row := range m.rows {
			line := m.cut(row.line)
			switch {
			case i == m.cursor:
				line = reverse + line + reset
			case row.bad:
				line = red + line + reset
			}
			shown = append(shown, line)
		}
	} else {
		lines = append(lines, bold+m.cut("Pod "+plain(m.opened.podNamespace)+"/"+plain(m.opened.pod))+reset)
		cut := make([]string, len(shown))
		for i, line := range shown {
			cut[i] = m.cut(line)
		}
		shown = cut
	}
	from := min(m.top, len(shown))
	to := min(from+m.space(), len(shown))
	lines = append(lines, shown[from:to]...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return append(lines, dim+m.cut(m.footer())+reset)
}

func (m *topModel) cut(line string) string { return short(line, m.width) }

// summary counts what is shown in all.
func (m *topModel) summary() string {
	slots, free, waiting, problems := 0, 0, 0, 0
	for _, c := range m.view.Configurations() {
		if !m.shows(c.Namespace, c.Labels) {
			continue
		}
		slots, free, waiting = slots+c.Slots, free+c.Free, waiting+c.Waiting
		if len(c.Problems) > 0 {
			problems++
		}
	}
	text := fmt.Sprintf("kubeslot  %d slots, %d held, %d free  %s  %d pods wait", slots, slots-free, free, bar(slots-free, slots, 20), waiting)
	if problems > 0 {
		text += fmt.Sprintf("  %d Configurations with problems", problems)
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

// page fills the rows with a table's lines. about says what a row is of.
func topPage[T any](m *topModel, rows []T, columns []column[T], about func(*T) topRow) {
	var text bytes.Buffer
	newTable(&text, columns, m.width >= wideScreen, true).print(rows)
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	m.header, m.rows = lines[0], make([]topRow, len(rows))
	for i := range rows {
		m.rows[i] = about(&rows[i])
		m.rows[i].line = lines[i+1]
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
	columns[at] = column[view.Configuration]{"USED", false, func(c *view.Configuration) string { return bar(c.Held, c.Slots, 10) }}
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
