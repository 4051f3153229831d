package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one fault in a contract.
type Problem struct {
	File string
	Pos  Pos
	// Key is the path of the key at fault, such as "capacity_gate.by_class.long.ttft_p99"; it is "" when
	// the fault is in the YAML itself.
	Key string
	// Found is what stands there; Expected is what may stand there.
	Found    string
	Expected string
}

// Error returns "file:line:col: key: found …, expected …".
func (p Problem) Error() string {
	place := fmt.Sprintf("%s:%d:%d", p.File, p.Pos.Line, p.Pos.Column)
	if p.Key != "" {
		place += ": " + p.Key
	}
	return fmt.Sprintf("%s: found %s, expected %s", place, p.Found, p.Expected)
}

// Errors is every problem of a contract, sorted by position.
type Errors []Problem

// Error returns one problem per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, problem := range e {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) sortByPosition() {
	slices.SortStableFunc(e, func(a, b Problem) int {
		if a.Pos.Line != b.Pos.Line {
			return a.Pos.Line - b.Pos.Line
		}
		return a.Pos.Column - b.Pos.Column
	})
}

// didYouMean returns the candidate nearest to word in edit distance, when it is near enough to be a likely
// slip: a third of the word's length, at least one and at most four edits.
func didYouMean(word string, candidates []string) (string, bool) {
	best, bestDistance := "", min(max(1, len([]rune(word))/3), 4)+1
	for _, candidate := range candidates {
		if distance := editDistance(strings.ToLower(word), candidate); distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	return best, best != ""
}

// editDistance is the optimal string alignment distance (insertions, deletions, substitutions and swaps of
// neighbours each cost 1), counted in characters.
func editDistance(a, b string) int {
	from, to := []rune(a), []rune(b)
	// Three rows of the dynamic programme are enough: a swap looks two rows back.
	beforePrevious, previous, current := make([]int, len(to)+1), make([]int, len(to)+1), make([]int, len(to)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(from); i++ {
		current[0] = i
		for j := 1; j <= len(to); j++ {
			substitution := previous[j-1]
			if from[i-1] != to[j-1] {
				substitution++
			}
			current[j] = min(previous[j]+1, current[j-1]+1, substitution)
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				current[j] = min(current[j], beforePrevious[j-2]+1)
			}
		}
		beforePrevious, previous, current = previous, current, beforePrevious
	}
	return previous[len(to)]
}
