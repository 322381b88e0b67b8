package periodic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const day = 24 * time.Hour

// world is a store with a clock that the test moves, and a term to write under.
type world struct {
	*readtest.World
	t       *testing.T
	st      *store.Store
	now     atomic.Int64
	term    int64
	env     service.Env
	windows Windows
	logs    []string // runs whose logs were deleted
}

func each(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		w := &world{t: t, windows: Windows{Runs: 90 * day, Audit: 365 * day, Checks: 7 * day}}
		w.now.Store(time.Now().Add(-2 * 365 * day).UnixMilli())
		d.Config.Now = func() time.Time { return time.UnixMilli(w.now.Load()) }
		w.st = d.Open(t)
		w.env = service.Env{Now: d.Config.Now, NewID: ci.NewID}
		w.World = readtest.New(t, w.st)
		w.Write(func(tx *store.Tx) (err error) {
			if err := tx.SeedLeaderTerm(t.Context()); err != nil {
				return err
			}
			w.term, err = tx.TakeLeaderTerm(t.Context())
			return err
		})
		fn(t, w)
	})
}

func (w *world) retention() *Retention {
	return NewRetention(RetentionDeps{
		Store: w.st, Env: w.env, Log: obs.Discard(), Registry: prometheus.NewRegistry(), Windows: func() Windows { return w.windows },
		Logs: func(id string) error { w.logs = append(w.logs, id); return nil },
	})
}

// ended makes a run that has ended, and moves its end and its beginning into the past on databases with a clock of their own.
func (w *world) ended(ago time.Duration) string {
	w.t.Helper()
	id := w.Run(readtest.NewRun{})
	if _, err := w.Runs.Cancel(w.t.Context(), run.CancelRequest{OrgID: readtest.Org, RunID: id, By: "x", Force: true}); err != nil {
		w.t.Fatal(err)
	}
	w.Write(func(tx *store.Tx) error {
		return tx.AgeRun(w.t.Context(), tx.Now()-ago.Milliseconds(), id)
	})
	return id
}

func (w *world) has(id string) bool {
	w.t.Helper()
	n, err := w.st.Read().KnownRun(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return n > 0
}

// XC-140: the first sweep with retention on reports what it would delete; a week later it deletes.
func TestXC140FirstSweepReportsOnly(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		old, young, open := w.ended(100*day), w.ended(10*day), w.Run(readtest.NewRun{})
		w.Write(func(tx *store.Tx) error {
			_, err := tx.InsertDelivery(t.Context(), db.InsertDeliveryParams{
				ID: "open", OrgID: readtest.Org, DeliveryID: "d", RoutingKey: readtest.Key, Status: "received", Headers: "{}", Decisions: "[]", Body: []byte("{}"),
				ReceivedAt: tx.Now() - (100 * day).Milliseconds(),
			})
			if err != nil {
				return err
			}
			return tx.InsertAccessLog(t.Context(), db.InsertAccessLogParams{ID: "e", OrgID: readtest.Org, At: tx.Now() - (400 * day).Milliseconds(), Meta: "{}"})
		})
		r := w.retention()
		for range 2 {
			report, err := r.Run(t.Context(), w.term)
			if err != nil || !w.has(old) || len(w.logs) > 0 {
				t.Fatal(err, report, w.logs)
			}
			if text := strings.Join(report, "\n"); !strings.Contains(text, "1 runs are older than 90 days and would be deleted") || !strings.Contains(text, "1 access log entries") {
				t.Errorf("%q", report)
			}
		}
		w.announcedLongAgo()
		report, err := r.Run(t.Context(), w.term)
		if err != nil || w.has(old) || !w.has(young) || !w.has(open) || !slices.Equal(w.logs, []string{old}) {
			t.Errorf("%v %q: old %t, young %t, open %t, logs %v", err, report, w.has(old), w.has(young), w.has(open), w.logs)
		}
		if _, err := w.st.Read().AccessLogEntry(t.Context(), readtest.Org, "e"); err == nil {
			t.Error("the old entry of the access log stays")
		}
		if rows, err := w.st.Read().WholeJobs(t.Context(), old); err != nil || len(rows) > 0 {
			t.Error("jobs stay", err)
		}
		// A shorter window concerns more than what was announced: it is announced first.
		w.windows.Runs = 5 * day
		if report, err := r.Run(t.Context(), w.term); err != nil || !w.has(young) || !strings.Contains(strings.Join(report, "\n"), "5 days and would be deleted") {
			t.Errorf("%v %q", err, report)
		}
		// 0 keeps for ever, and turning it on again announces again.
		w.announcedLongAgo()
		w.windows.Runs = 0
		if _, err := r.Run(t.Context(), w.term); err != nil || !w.has(young) {
			t.Error(err)
		}
		w.windows.Runs = 5 * day
		if _, err := r.Run(t.Context(), w.term); err != nil || !w.has(young) {
			t.Error(err)
		}
		w.announcedLongAgo()
		if _, err := r.Run(t.Context(), w.term); err != nil || w.has(young) || !w.has(open) {
			t.Error(err)
		}
		if _, err := r.Run(t.Context(), w.term-1); !errors.Is(err, store.ErrNotLeader) {
			t.Error("an older term deletes:", err)
		}
	})
}

// announcedLongAgo makes all announcements old enough.
func (w *world) announcedLongAgo() {
	w.t.Helper()
	w.Write(func(tx *store.Tx) error {
		for _, name := range []string{"runs", "deliveries", "access log entries", "commit statuses"} {
			stored, err := tx.ClusterMetaOrNone(w.t.Context(), metaKey(name))
			if err != nil || len(stored) == 0 {
				return err
			}
			_, window, _ := strings.Cut(stored[0], ":")
			at := tx.Now() - (announcement + time.Minute).Milliseconds()
			if err := tx.SetClusterMeta(w.t.Context(), metaKey(name), fmt.Sprintf("%d:%s", at, window)); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestNext(t *testing.T) {
	jobs := []Job{{Name: "a", Every: time.Hour}, {Name: "b", Every: 10 * time.Minute}}
	const now = int64(100 * 3_600_000)
	ago := func(d time.Duration) int64 { return now - d.Milliseconds() }
	tests := map[string]struct {
		rows []db.ScheduledJob
		led  int64
		due  string
		wait time.Duration
	}{
		"never run, just leading":    {nil, now, "", time.Minute},
		"never run, leads for a bit": {nil, ago(firstRun), "ab", 0},
		"one is due":                 {[]db.ScheduledJob{{Name: "a", LastRunAt: ago(30 * time.Minute)}, {Name: "b", LastRunAt: ago(10 * time.Minute)}}, ago(time.Hour), "b", 0},
		"soon":                       {[]db.ScheduledJob{{Name: "a", LastRunAt: ago(30 * time.Minute)}, {Name: "b", LastRunAt: ago(595 * time.Second)}}, ago(time.Hour), "", 5 * time.Second},
		"a wrong clock":              {[]db.ScheduledJob{{Name: "a", LastRunAt: now + 1000}, {Name: "b", LastRunAt: now}}, ago(time.Hour), "a", 0},
	}
	for name, tc := range tests {
		due, wait := next(jobs, tc.rows, tc.led, now)
		names := ""
		for _, j := range due {
			names += j.Name
		}
		if names != tc.due || names == "" && wait != tc.wait {
			t.Errorf("%s: due %q, wait %s", name, names, wait)
		}
	}
}

// lead is a fake of cluster.Leader.
type lead struct{ term int64 }

func (l lead) Term() (int64, bool) { return l.term, l.term > 0 }

func (l lead) While(ctx context.Context, fn func(context.Context, int64) error) error {
	return fn(ctx, l.term)
}

func TestTrigger(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		var failed []string
		started, finish := make(chan struct{}), make(chan struct{})
		var broken atomic.Bool
		broken.Store(true)
		s := New(Deps{
			Store: w.st, Leader: lead{w.term}, InstanceID: "i", Env: w.env, Log: obs.Discard(), Registry: prometheus.NewRegistry(),
			Failed: func(job string, err error) { failed = append(failed, job+": "+err.Error()) },
			Jobs: []Job{
				{Name: "slow", Every: time.Hour, Run: func(context.Context, int64) ([]string, error) {
					close(started)
					<-finish
					return []string{"did it"}, nil
				}},
				{Name: "bad", Every: time.Hour, Run: func(context.Context, int64) ([]string, error) {
					if broken.Load() {
						panic("no")
					}
					return nil, nil
				}},
			},
		})
		done := make(chan Outcome)
		go func() {
			o, err := s.Trigger(t.Context(), "slow")
			if err != nil {
				t.Error(err)
			}
			done <- o
		}()
		<-started
		if _, err := s.Trigger(t.Context(), "slow"); !errors.Is(err, ErrRunning) { // JOB-2
			t.Error(err)
		}
		close(finish)
		if o := <-done; o.Err != nil || !slices.Equal(o.Report, []string{"did it"}) {
			t.Errorf("%+v", o)
		}
		for range 2 {
			if o, err := s.Trigger(t.Context(), "bad"); err != nil || o.Err == nil {
				t.Error(o, err)
			}
		}
		rows, err := s.List(t.Context())
		if err != nil || rows[0].LastOkAt == 0 || rows[0].InstanceID != "i" || rows[1].Failures != 2 || !strings.Contains(rows[1].LastError, "panic") || len(failed) != 2 {
			t.Errorf("%+v %v %v", rows, err, failed)
		}
		broken.Store(false)
		if o, err := s.Trigger(t.Context(), "bad"); err != nil || o.Err != nil {
			t.Error(o, err)
		}
		if rows, err := s.List(t.Context()); err != nil || rows[1].Failures != 0 || rows[1].LastError != "" {
			t.Errorf("%+v %v", rows, err)
		}
		if _, err := s.Trigger(t.Context(), "nothing"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		away := New(Deps{Store: w.st, Leader: lead{}, Env: w.env, Log: obs.Discard(), Registry: prometheus.NewRegistry(), Jobs: s.d.Jobs})
		if _, err := away.Trigger(t.Context(), "bad"); !errors.Is(err, ErrNotHere) {
			t.Error(err)
		}
	})
}
