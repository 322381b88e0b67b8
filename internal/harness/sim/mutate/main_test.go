package main

import "testing"

// TestMutationsApply: a mutation whose text has gone from the product would prove nothing.
func TestMutationsApply(t *testing.T) {
	for _, m := range mutations {
		if _, err := m.apply("../../../.."); err != nil {
			t.Error(err)
		}
	}
	if len(mutations) < 10 {
		t.Errorf("only %d mutations", len(mutations))
	}
}
