//go:build !race

package harness

const slowness = 1
