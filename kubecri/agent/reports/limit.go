package reports

import (
	"cmp"
	"slices"
)

// Limit leaves at most most of the devices, by hash, and returns how many it leaves out. Those stay that keeps
// returns true for, be they more; of others those with the lowest ids. It changes nothing that it is given.
func Limit(devices map[string]Device, most int, keeps func(hash string) bool) (left map[string]Device, out int) {
	if len(devices) <= most {
		return devices, 0
	}
	left = make(map[string]Device, most)
	var others []Device
	for hash, d := range devices {
		if keeps(hash) {
			left[hash] = d
		} else {
			others = append(others, d)
		}
	}
	slices.SortFunc(others, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	for _, d := range others[:min(len(others), max(most-len(left), 0))] {
		left[d.Hash] = d
	}
	return left, len(devices) - len(left)
}
