package mdns

const (
	maxInstances = 2048 // of all services on one interface
	maxAddresses = 16   // of one host on one interface

	// maxAllInstances is on all interfaces together. Beyond it an interface may have its share of as many
	// again: a flood on others leaves room for what is there.
	maxAllInstances = 2 * maxInstances
)

// hasRoom is whether an interface may have one more instance.
func (c *cache) hasRoom(l *link) bool {
	all := 0
	for _, other := range c.links {
		all += len(other.instances)
	}
	return len(l.instances) < maxInstances && (all < maxAllInstances || len(l.instances) < maxAllInstances/len(c.links))
}

// isCrowded is whether an interface may have no more instances.
func (c *cache) isCrowded() bool {
	for _, l := range c.links {
		if !c.hasRoom(l) {
			return true
		}
	}
	return false
}
