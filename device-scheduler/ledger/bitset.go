package ledger

import "math/bits"

// bitset is a set of small non-negative numbers.
type bitset []uint64

func (b *bitset) set(i int) {
	for len(*b) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

func (b bitset) clear(i int) {
	if i/64 < len(b) {
		b[i/64] &^= 1 << (i % 64)
	}
}

func (b bitset) has(i int) bool {
	return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0
}

// lowestAbsent returns the smallest number that is not in the set.
func (b bitset) lowestAbsent() int {
	for w, word := range b {
		if ^word != 0 {
			return w*64 + bits.TrailingZeros64(^word)
		}
	}
	return len(b) * 64
}

// below returns how many members are below n.
func (b bitset) below(n int) int {
	count := 0
	for w, word := range b {
		if at := n - w*64; at <= 0 {
			break
		} else if at < 64 {
			word &= 1<<at - 1
		}
		count += bits.OnesCount64(word)
	}
	return count
}
