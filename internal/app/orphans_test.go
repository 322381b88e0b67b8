package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/scalercmd"
)

// What a server has left is found and ended without it and its database; while it runs nothing is touched (OP-1).
func TestReapOrphans(t *testing.T) {
	w := newWorld(t)
	runID := w.startRun("waiting")
	w.until("the job runs", runID, func(d client.RunDetail) bool { return len(d.Jobs) > 0 && d.Jobs[0].Status == "running" })
	req := scalercmd.Reap{DataDir: w.o.DataDir}
	if got, err := reapOrphans(t.Context(), req); err != nil || !got.Skipped || len(got.Orphans) > 0 {
		t.Fatalf("beside its server: %+v %v", got, err)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dryRun bool
		want   int
	}{{true, 1}, {true, 1}, {false, 1}, {false, 0}, {true, 0}} {
		req.DryRun = c.dryRun
		got, err := reapOrphans(t.Context(), req)
		if err != nil || got.Skipped || len(got.Orphans) != c.want {
			t.Fatalf("dry run %v: %+v %v, want %d", c.dryRun, got, err, c.want)
		}
		for _, o := range got.Orphans {
			if o.Scaler != "local" || o.Type != "bare-metal" || !o.Running || !strings.HasPrefix(o.Detail, "pid ") || !slices.Contains(o.Holds, "process") {
				t.Errorf("%+v", o)
			}
		}
	}
}
