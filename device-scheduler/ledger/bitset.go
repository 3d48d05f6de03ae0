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

// lowest returns the smallest member, or -1.
func (b bitset) lowest() int {
	for w, word := range b {
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}
