package command

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// page is what top shows at a time.
type page int

const (
	configurationPage page = iota
	instancePage
	slotPage
	podPage
	pages
)

func (p page) String() string {
	return [...]string{"Configurations", "Instances", "Slots", "Pods"}[p]
}

// topModel is the state of the screen: a value of what came in, that decides what is
// drawn. It implements tea.Model.
type topModel struct {
	now   func() time.Time
	shows filter
	all   bool
	feed  feed

	missing  []string
	outdated error // why the view is out of date; nil when it is not
	view     *view.View
	page     page
	counts   topCounts
	rows     []topRow // of the page, that pass the filter
	// cells are those of the column names, and of the page's rows that are given. Only what is on
	// the screen is drawn; widths, which are the columns', grow with it.
	cells      func(rows []topRow) [][]string
	importance []string // of the columns
	widths     []int
	cursor     int
	top        int // the first row on the screen
	of         string
	filter     string
	typing     bool
	// opened is the pod that is described; lines is its description, as wide as the screen.
	opened        *topRow
	description   []string
	lines         []string
	width, height int
}

// topCounts are the sums of what is shown.
type topCounts struct{ slots, free, waiting, problems int }

// topRow is what a line is of; at is where it is among the page's.
type topRow struct {
	at                      int
	key                     string
	bad                     bool
	configuration, instance string
	podNamespace, pod       string
}

func newTop(now func() time.Time, shows filter, all bool) *topModel {
	m := &topModel{now: now, shows: shows, all: all, view: view.New(view.Objects{}), width: 80, height: 24}
	m.fill()
	return m
}

// Messages.
type (
	changed struct {
		view     *view.View
		outdated error
	}
	tick      struct{}
	described struct {
		key string
		pod view.Pod
		ok  bool
	}
)

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return tea.Batch(m.wait(), m.tick()) }

func (m *topModel) wait() tea.Cmd {
	if m.feed == nil {
		return nil
	}
	return func() tea.Msg {
		if c, more := m.feed.next(); more {
			return c
		}
		return nil
	}
}

// tick brings ages up to date.
func (m *topModel) tick() tea.Cmd {
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return tick{} })
}

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height, m.widths = max(msg.Width, leastWidth), max(msg.Height, 6), nil
		m.lines = wrapped(m.description, m.width)
		m.fill()
	case changed:
		m.outdated = msg.outdated
		m.setView(msg.view)
		return m, tea.Batch(m.wait(), m.describe())
	case tick:
		return m, m.tick()
	case described:
		if m.opened != nil && m.opened.key == msg.key {
			m.setDescription(msg)
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// press handles a key.
func (m *topModel) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	if m.typing {
		m.typeFilter(key, name)
		return nil
	}
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "1", "2", "3", "4":
		m.goTo(page(name[0]-'1'), "")
	case "tab", "right":
		m.goTo((m.page+1)%pages, "")
	case "shift+tab", "left":
		m.goTo((m.page+pages-1)%pages, "")
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.space())
	case "pgdown", "space":
		m.move(m.space())
	case "home", "g":
		m.move(-len(m.rows) - len(m.lines))
	case "end", "G":
		m.move(len(m.rows) + len(m.lines))
	case "/":
		m.typing = true
	case "esc", "backspace":
		m.back()
	case "enter":
		return m.open()
	}
	return nil
}

func (m *topModel) typeFilter(key tea.KeyPressMsg, name string) {
	switch name {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.filter = false, ""
	case "backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	default:
		m.filter += key.Key().Text
	}
	m.cursor = 0
	m.fill()
}

func (m *topModel) goTo(p page, of string) {
	m.page, m.of, m.filter, m.opened, m.lines, m.cursor, m.top, m.widths = p, of, "", nil, nil, 0, 0, nil
	m.fill()
}

// back undoes what narrowed the page last.
func (m *topModel) back() {
	switch {
	case m.opened != nil:
		m.opened, m.lines, m.top = nil, nil, 0
	case m.filter != "":
		m.filter = ""
	default:
		m.of = ""
	}
	m.fill()
}

// open goes one step further into the row of the cursor.
func (m *topModel) open() tea.Cmd {
	if m.opened != nil || m.cursor >= len(m.rows) {
		return nil
	}
	row := m.rows[m.cursor]
	switch m.page {
	case configurationPage:
		m.goTo(instancePage, row.configuration)
	case instancePage:
		m.goTo(slotPage, row.instance)
	default:
		if row.pod != "" {
			m.opened, m.top = &row, 0
			m.description = []string{"…"}
			m.lines = m.description
			return m.describe()
		}
	}
	return nil
}

// describe asks for the description of the pod that is open.
func (m *topModel) describe() tea.Cmd {
	if m.opened == nil || m.feed == nil {
		return nil
	}
	row, v, from := *m.opened, m.view, m.feed
	return func() tea.Msg {
		pod, ok := from.pod(v, row.podNamespace, row.pod)
		return described{row.key, pod, ok}
	}
}

func (m *topModel) setDescription(d described) {
	if d.ok {
		var text bytes.Buffer
		describePod(&text, &d.pod, m.now())
		m.description = strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	} else {
		m.description = []string{fmt.Sprintf("There is no pod %s/%s that you can see.", plain(m.opened.podNamespace), plain(m.opened.pod))}
	}
	m.lines = wrapped(m.description, m.width)
}

func (m *topModel) setView(v *view.View) {
	m.view, m.counts = v, topCounts{}
	for _, c := range m.shows.configurations(v) {
		m.counts.slots, m.counts.free = m.counts.slots+c.Slots, m.counts.free+c.Free
		if len(c.Problems) > 0 {
			m.counts.problems++
		}
	}
	for _, pod := range v.Waiting() {
		if m.shows(pod.Namespace, pod.Labels) {
			m.counts.waiting++
		}
	}
	m.fill()
}

// fill makes the page's rows anew. The cursor stays on its row.
func (m *topModel) fill() {
	at := ""
	if m.cursor < len(m.rows) {
		at = m.rows[m.cursor].key
	}
	switch m.page {
	case configurationPage:
		m.configurations()
	case instancePage:
		m.instances()
	case slotPage:
		m.slots()
	case podPage:
		m.pods()
	}
	if m.filter != "" {
		lines, filter := m.cells(m.rows)[1:], strings.ToLower(m.filter)
		m.rows = slices.DeleteFunc(m.rows, func(r topRow) bool {
			return !strings.Contains(strings.ToLower(strings.Join(lines[r.at], " ")), filter)
		})
	}
	if i := slices.IndexFunc(m.rows, func(r topRow) bool { return r.key == at }); at != "" && i >= 0 {
		m.cursor = i
	}
	m.cursor = max(0, min(m.cursor, len(m.rows)-1))
	m.scroll()
}

// move moves the cursor, or the description.
func (m *topModel) move(by int) {
	if m.opened != nil {
		m.top = max(0, min(m.top+by, len(m.lines)-m.space()))
		return
	}
	m.cursor = max(0, min(m.cursor+by, len(m.rows)-1))
	m.scroll()
}

// scroll keeps the cursor on the screen.
func (m *topModel) scroll() {
	if m.opened != nil {
		return
	}
	m.top = min(m.top, m.cursor)
	m.top = max(m.top, m.cursor-m.space()+1, 0)
}

// space is how many rows the screen has: it has three lines above and one below.
func (m *topModel) space() int { return max(m.height-4, 1) }
