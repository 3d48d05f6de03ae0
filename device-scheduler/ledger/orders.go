package ledger

import "slices"

// maxMixed bounds how many containers are tried in each order.
const maxMixed = 4

// orders returns the orders in which containers choose Instances, at least one.
func (l *Ledger) orders(req *Request) [][]int {
	var mixed, others []int
	for i := range req.Containers {
		if l.mixed(&req.Containers[i]) {
			mixed = append(mixed, i)
		} else {
			others = append(others, i)
		}
	}
	if len(mixed) < 2 || len(mixed) > maxMixed {
		return [][]int{append(mixed, others...)}
	}
	var orders [][]int
	permute(mixed, func(p []int) { orders = append(orders, append(slices.Clone(p), others...)) })
	return orders
}

// mixed reports whether the container asks for an Instance by name and for any
// of the same Configuration as well.
func (l *Ledger) mixed(c *ContainerRequest) bool {
	if len(c.Resources) < 2 {
		return false
	}
	for _, r := range c.Resources {
		if k := l.kindOf(r.Name); k != nil && k.name != r.Name &&
			slices.ContainsFunc(c.Resources, func(o ResourceRequest) bool { return o.Name == k.name }) {
			return true
		}
	}
	return false
}

// permute calls visit with each order of items, first the given one.
func permute(items []int, visit func([]int)) {
	var from func(i int)
	from = func(i int) {
		if i == len(items) {
			visit(items)
			return
		}
		for j := i; j < len(items); j++ {
			items[i], items[j] = items[j], items[i]
			from(i + 1)
			items[i], items[j] = items[j], items[i]
		}
	}
	from(0)
}
