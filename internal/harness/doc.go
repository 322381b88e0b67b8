// Package harness holds what tests the whole: crash points (a server that dies at a chosen commit), attacks from outside, and
// the browser. The programs that it starts are this test binary again; bench, below, measures the real one.
package harness
