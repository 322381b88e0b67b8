// Package suggest finds the known word that a mistyped one most likely meant, so that messages can offer a cure.
package suggest

import "strings"

// maxWord bounds the cost of a comparison; nobody mistypes a longer key.
const maxWord = 64

// Nearest returns the word of known with the smallest edit distance to word, ignoring case and the difference between
// "-" and "_". It returns "" when nothing is near enough to be what the author meant. The first of equals wins.
func Nearest(word string, known []string) string {
	if word == "" || len(word) > maxWord {
		return ""
	}
	w := fold(word)
	limit := 1 + len(w)/3
	if limit > 3 {
		limit = 3
	}
	best, bestDistance := "", limit+1
	for _, k := range known {
		d := distance(w, fold(k))
		if d < bestDistance && d < len(w) {
			best, bestDistance = k, d
		}
	}
	return best
}

// Cure is "did you mean X?" for the nearest known word, and otherwise lists what is known.
func Cure(word string, known []string) string {
	if n := Nearest(word, known); n != "" {
		return `did you mean "` + n + `"?`
	}
	const most = 24
	if len(known) == 0 || len(known) > most {
		return ""
	}
	return "known: " + strings.Join(known, ", ")
}

func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }

// distance is the Damerau-Levenshtein distance (adjacent transpositions count once).
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
