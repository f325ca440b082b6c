// Package nearest guesses what somebody meant who misspelled a name: a command,
// an option, a topic, a field.
//
// It may be called from any goroutine. Deliberately absent: any limit; callers
// bound the words and the candidates that they give.
package nearest

import "iter"

// To returns the candidate that word is most likely a misspelling of, or "" if
// none is close. Among candidates as close as another the longer one is meant:
// letters are left out more often than made up.
func To(word string, candidates iter.Seq[string]) string {
	best, bestDistance := "", max(2, len(word)/3)+1
	for c := range candidates {
		d := Distance(word, c)
		if d < bestDistance || d == bestDistance && best != "" && len(c) > len(best) {
			best, bestDistance = c, d
		}
	}
	return best
}

// Distance counts the insertions, deletions, replacements and swaps of
// neighbours that make b of a.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, next := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		next[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			d := min(last[j]+cost, last[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				d = min(d, before[j-1]+1)
			}
			next[j+1] = d
		}
		before, last, next = last, next, before
	}
	return last[len(y)]
}
