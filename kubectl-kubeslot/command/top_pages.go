package command

import (
	"slices"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// The columns of each page, the most important first: the others are left out where they do not fit.
var (
	configurationImportance = []string{"NAME", "NAMESPACE", "FREE", "PROBLEM", "WAITING", "READY", "USED", "SLOTS",
		"HANDLER", "INSTANCES", "NODES", "HELD", "ASSIGNED", "ALLOCATOR"}
	instanceImportance = []string{"NAME", "NAMESPACE", "FREE", "PROBLEM", "LOST ON", "NODES", "DEVICE", "SLOTS",
		"HELD", "CONFIGURATION", "SHARED", "ASSIGNED"}
	slotImportance = []string{"SLOT", "NAMESPACE", "STATE", "HOLDER", "NODE", "SINCE",
		"CONTAINER", "DEVICE", "LEVEL", "POD UID"}
	podImportance = []string{"NAME", "NAMESPACE", "STATE", "REASON", "SINCE", "NODE", "REQUESTS", "SLOTS", "MESSAGE"}
)

// leastCut is what has to be seen of the last column, which may be cut: it is a text on most pages.
const leastCut = 20

// fitting are the places of the columns that fit a width.
func fitting(columns []string, widths []int, importance []string, width int) []int {
	var places []int
	left := width + gap // which is not needed behind the last
	for _, name := range importance {
		at := slices.Index(columns, name)
		if at < 0 { // NAMESPACE, where there is only one
			continue
		}
		if widths[at] <= left || at == len(columns)-1 && left >= leastCut || places == nil {
			places = append(places, at)
			left -= widths[at]
		}
	}
	slices.Sort(places)
	return places
}

// picked are the elements at the places.
func picked[T any](from []T, places []int) []T {
	var all []T
	for _, at := range places {
		all = append(all, from[at])
	}
	return all
}

// topPage fills the rows with those of a table. about says what a row is of.
func topPage[T any](m *topModel, rows []T, columns []column[T], importance []string, about func(*T) topRow) {
	m.rows = make([]topRow, len(rows))
	for i := range rows {
		m.rows[i] = about(&rows[i])
		m.rows[i].at = i
	}
	m.importance = importance
	m.cells = func(of []topRow) [][]string {
		shown := make([]T, len(of))
		for i := range of {
			shown[i] = rows[of[i].at]
		}
		return newTable(nil, columns, true, true, 0).cells(shown)
	}
}

// draw makes lines of the page's rows: that of the column names, and one for each.
func (m *topModel) draw(rows []topRow) []string {
	lines := m.cells(rows)
	if m.widths == nil {
		m.widths = make([]int, len(lines[0]))
	}
	grow(m.widths, lines)
	places := fitting(lines[0], m.widths, m.importance, m.width)
	widths := picked(m.widths, places)
	var drawn []string
	for _, cells := range lines {
		drawn = append(drawn, aligned(picked(cells, places), widths))
	}
	return drawn
}

func (m *topModel) configurations() {
	rows := m.shows.configurations(m.view)
	columns := configurationColumns(m.all)
	last := len(columns) - 1 // PROBLEM
	columns[last].value = func(c *view.Configuration) string {
		return first(c.Problems, 60) // longer, it would take other columns' place
	}
	columns = slices.Insert(columns, last, column[view.Configuration]{"USED", wordColumn,
		func(c *view.Configuration) string { return bar(c.Slots-c.Free, c.Slots, 10) }})
	topPage(m, rows, columns, configurationImportance, func(c *view.Configuration) topRow {
		return topRow{key: c.Namespace + "/" + c.Name, bad: !c.Ready, configuration: c.Name}
	})
}

func (m *topModel) instances() {
	rows := slices.DeleteFunc(m.view.Instances(), func(i view.Instance) bool {
		return !m.shows(i.Namespace, i.Labels) || m.of != "" && m.of != i.Configuration
	})
	topPage(m, rows, instanceColumns(m.all), instanceImportance, func(i *view.Instance) topRow {
		return topRow{key: i.Namespace + "/" + i.Name, bad: len(i.Lost)+len(i.Problems) > 0, instance: i.Name}
	})
}

func (m *topModel) slots() {
	rows := slices.DeleteFunc(m.view.Slots(), func(s view.Slot) bool {
		return !m.shows(s.InstanceNamespace, s.Labels) || m.of != "" && m.of != s.Instance && m.of != s.Configuration
	})
	topPage(m, rows, slotColumns(m.now, m.all), slotImportance, func(s *view.Slot) topRow {
		return topRow{key: s.Name, podNamespace: s.Namespace, pod: s.Pod}
	})
}

func (m *topModel) pods() {
	rows := slices.DeleteFunc(m.view.Pods(), func(p view.Pod) bool { return !m.shows(p.Namespace, p.Labels) })
	topPage(m, rows, podColumns(m.now, m.all), podImportance, func(p *view.Pod) topRow {
		return topRow{key: p.Namespace + "/" + p.Name, bad: len(p.Waits) > 0, podNamespace: p.Namespace, pod: p.Name}
	})
}
