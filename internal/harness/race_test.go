//go:build race

package harness

const slowness = 10 // of the race detector
