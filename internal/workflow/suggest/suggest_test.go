package suggest

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"runs-on", "needs", "timeout-minutes", "steps", "env", "if", "name"}
	for word, want := range map[string]string{
		"run-on": "runs-on", "runs_on": "runs-on", "RUNS-ON": "runs-on", "need": "needs", "step": "steps", "stpes": "steps",
		"timeout-minute": "timeout-minutes", "timeout": "", "zzz": "", "": "", "anme": "name", "x": "", "of": "if",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestCure(t *testing.T) {
	if got := Cure("zzz", []string{"a", "b"}); got != "known: a, b" {
		t.Error(got)
	}
	if got := Cure("step", []string{"steps"}); got != `did you mean "steps"?` {
		t.Error(got)
	}
}
