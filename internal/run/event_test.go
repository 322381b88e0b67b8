package run_test

import (
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
)

// TestUnheardEventsEndAsTheyAreWritten (EVT-24): what nobody waits for is not routed, unless the registry has changed since that was known.
func TestUnheardEventsEndAsTheyAreWritten(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.write(func(tx *store.Tx) error { return tx.BumpRegistryVersion(ctx) })
		for _, c := range []struct {
			name string
			at   int64
			want bool
		}{
			{"somebody waits", -1, false},
			{"known at an older version", 0, false},
			{"known at this version", 1, true},
		} {
			ended := 0
			w.s.Listen(run.Listeners{UnheardAt: func(string, string) int64 { return c.at }, Ended: func(string) { ended++ }})
			id := w.insert(newRun(job("build")))
			w.work(w.job(id, "build").ID, ci.JobSuccess, nil)
			rows, err := w.st.Read().EventsOfRun(ctx, id)
			if err != nil || len(rows) != 2 {
				t.Fatalf("%s: %d events, %v", c.name, len(rows), err)
			}
			for _, e := range rows {
				outcome := e.Processed && e.MatchOutcome.String == "no-registration" && e.MatchedCount.Valid && e.MatchedCount.Int64 == 0 && e.ProcessedAt.Int64 == e.CreatedAt
				if outcome != c.want || e.Processed != c.want || e.Attempts != map[bool]int64{true: 1}[c.want] {
					t.Errorf("%s: %+v", c.name, e)
				}
			}
			if (ended == 2) != c.want {
				t.Errorf("%s: %d counted", c.name, ended)
			}
		}
	})
}
