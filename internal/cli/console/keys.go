package console

import (
	"maps"
	"slices"
)

// SortedKeys are the keys of a map in order, so that a command prints the same thing twice.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
