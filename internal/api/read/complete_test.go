package read_test

import (
	"context"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

// written is a log storage that knows how many lines each step has.
type written map[int]int

func (w written) ReadLines(_ context.Context, _ read.LogRef, step int, _ string, limit int) ([]client.LogLine, string, error) {
	return make([]client.LogLine, min(limit, w[step])), "", nil
}

func (w written) SeekLine(context.Context, read.LogRef, int, int64) (string, int64, error) {
	return "", 0, nil
}

func (w written) SearchLines(context.Context, read.LogRef, int, read.LogQuery) (read.LogFound, error) {
	return read.LogFound{}, nil
}

// A step that has ended may still get lines: only the job's end, or a line of a later step, says that there are no more.
func TestStepComplete(t *testing.T) {
	later := []client.Step{{Index: 2}, {Index: 3}}
	for name, c := range map[string]struct {
		logs  written
		ended bool
		later []client.Step
		want  bool
	}{
		"job runs, nothing later":              {written{1: 5}, false, nil, false},
		"later step began but wrote nothing":   {written{1: 5}, false, later, false},
		"later step wrote":                     {written{1: 5, 3: 1}, false, later, true},
		"job ended":                            {written{1: 5}, true, later, true},
		"job ended and this was the last step": {written{}, true, nil, true},
	} {
		got, err := read.StepComplete(t.Context(), c.logs, read.LogRef{}, c.ended, c.later)
		if err != nil || got != c.want {
			t.Errorf("%s: %t %v, want %t", name, got, err, c.want)
		}
	}
}
