// Package spelling compares words, to say which one a misspelt one was meant to be.
package spelling

import (
	"fmt"
	"strings"
)

// Distance is how many bytes have to be changed, added, taken away, or swapped with the next
// one to get from one word to the other. No byte is changed twice (it is the optimal string
// alignment distance). It takes time by the product of the words' lengths.
func Distance(a, b string) int {
	// Each row is the distances of a's first bytes from b's first 0, 1, 2, …
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// Nearest returns the one of the names that the word was probably meant to be: one that
// differs by case alone, else the first of those with the fewest changes, at most two and
// less than half of it. It is empty when none is near.
func Nearest(word string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if strings.EqualFold(name, word) {
			return name
		}
		if longer := len(word) - len(name); longer >= least || -longer >= least {
			continue
		}
		if d := Distance(strings.ToLower(word), strings.ToLower(name)); d < least && d*2 < len(name) {
			best, least = name, d
		}
	}
	return best
}

// DidYouMean proposes Nearest, as in `; did you mean "requests"?`; it is empty when none is
// near.
func DidYouMean(word string, names []string) string {
	name := Nearest(word, names)
	if name == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", name)
}
