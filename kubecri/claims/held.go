package claims

import "maps"

// Held returns the Instances of which this node holds slots, by a container or by a claim, or is about to;
// false while that is not known. Their devices stay in the node's DeviceSlices when the node sees them no more, as
// gone: claims count only where the node lists the device. It does not block.
func (c *Claims) Held() (instances map[string]bool, known bool) {
	if !c.isSynced() || !c.isKnown() {
		return nil, false
	}
	held := map[string]bool{}
	for _, name := range c.containers.slots() {
		held[name.Instance] = true
	}
	for _, name := range c.store.names() {
		held[name.Instance] = true
	}
	if k := c.config.Kubelet; k != nil && k.Gives != nil {
		k.Gives(held)
	}
	return held, true
}

// noteHeld calls HeldChanged if Held has something new to say.
func (c *Claims) noteHeld() {
	if c.config.HeldChanged == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	held, known := c.Held()
	if known && (c.held == nil || !maps.Equal(held, c.held)) {
		c.held = held
		c.config.HeldChanged()
	}
}
