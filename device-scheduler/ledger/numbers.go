package ledger

// numbers gives each node a small number, from 1, which no other node has at the same time. What is kept for
// nodes is in arrays by number: to find hundreds of nodes by their names, the processor would wait for memory.
type numbers struct {
	next    int32
	unused  []int32
	changes int // of which node has which number
}

func (m *numbers) give() int32 {
	m.changes++
	if last := len(m.unused) - 1; last >= 0 {
		n := m.unused[last]
		m.unused = m.unused[:last]
		return n
	}
	m.next++
	return m.next
}

func (m *numbers) takeBack(n int32) {
	m.changes++
	m.unused = append(m.unused, n)
}

// classTable has the classes of a Configuration's nodes by their numbers, in pages: many Configurations are
// reached by few nodes.
type classTable struct {
	pages []*[pageSize]*class
	nodes int // that reach something
}

const pageSize = 64

// of returns the class of the node with the number; 0 is of one that is not known.
func (t *classTable) of(number int32) *class {
	if at := int(number / pageSize); at < len(t.pages) && t.pages[at] != nil {
		if c := t.pages[at][number%pageSize]; c != nil {
			return c
		}
	}
	return unreached
}

// set enters a node's class; nil if it reaches nothing.
func (t *classTable) set(number int32, c *class) {
	at := int(number / pageSize)
	for at >= len(t.pages) {
		t.pages = append(t.pages, nil)
	}
	if t.pages[at] == nil {
		t.pages[at] = new([pageSize]*class)
	}
	slot := &t.pages[at][number%pageSize]
	if *slot != nil {
		t.nodes--
	}
	if *slot = c; c != nil {
		t.nodes++
	}
}
