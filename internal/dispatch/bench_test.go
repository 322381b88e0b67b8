package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// BenchmarkTick is DESIGN §11's row: 10,000 queued jobs of 50 shapes, 1,000 agents, 100 scalers; one whole pass with the
// store. steady: every agent is busy, nothing can move. moving: as many agents as the name says become free before each pass.
func BenchmarkTick(b *testing.B) {
	b.Run("steady", func(b *testing.B) { benchTick(b, 0) })
	b.Run("moving-50", func(b *testing.B) { benchTick(b, 50) })
	b.Run("booting-1000", func(b *testing.B) { benchBooting(b) })
}

func crowded(b *testing.B, agents int) *world {
	w := sqlite(b)
	for i := range 100 {
		w.scaler(fmt.Sprint("vm", i), 10, fmt.Sprint("pool-", i%50), "linux")
	}
	for batch := range 100 {
		jobs := make([]lock.Job, 100)
		for i := range jobs {
			jobs[i] = job(fmt.Sprint("j", i), fmt.Sprint("pool-", (batch*100+i)%50))
		}
		w.insert(jobs...)
	}
	w.write(func(tx *store.Tx) error {
		for i := range agents {
			id := fmt.Sprintf("scaler-fake-%08x", i)
			labels := fmt.Sprintf(`["linux","pool-%d"]`, i%50)
			err := tx.DispatchLaunch(ctx, db.DispatchLaunchParams{
				ID: id, OrgID: "acme", NodeID: "n1", Scaler: fmt.Sprint("vm", i%100), Type: "fake", Labels: labels, MandatoryLabels: "[]", Now: tx.Now(),
			})
			if err != nil {
				return err
			}
			if err := w.admit(tx, id, "requested", []string{"linux", fmt.Sprint("pool-", i%50)}); err != nil {
				return err
			}
		}
		return nil
	})
	return w
}

func benchTick(b *testing.B, free int) {
	w := crowded(b, 1000)
	for range 3 {
		w.place() // everybody gets a job
	}
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		w.free(free)
		b.StartTimer()
		w.place()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/tick")
}

// free ends that many assignments and puts their jobs back at the end of their queue.
func (w *world) free(n int) {
	w.t.Helper()
	if n == 0 {
		return
	}
	v, err := w.p.read(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(func(tx *store.Tx) error {
		for _, a := range v.snapshot.Agents {
			if a.Job == "" || n == 0 {
				continue
			}
			n--
			job, err := tx.LockJob(ctx, a.Job)
			if err != nil {
				return err
			}
			if _, err := w.runs.Requeue(tx, a.Job, int(job.Attempt), "bench", false); err != nil {
				return err
			}
		}
		return nil
	})
}

func benchBooting(b *testing.B) {
	w := crowded(b, 0)
	for range 3 {
		w.place() // 1,000 launches
	}
	b.ResetTimer()
	for b.Loop() {
		w.place()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/tick")
}

// BenchmarkJobs takes jobs from insert over placement to the end, 100 to a pass, durable as in production.
func BenchmarkJobs(b *testing.B) {
	w := sqlite(b)
	for i := range 100 {
		w.static(fmt.Sprint("box", i), "linux")
	}
	b.ResetTimer()
	began := time.Now()
	done := 0
	for b.Loop() {
		ids := make([]string, 100)
		for i := range ids {
			ids[i] = w.insert(job("a", "linux"))
		}
		w.place()
		for _, id := range ids {
			a := w.job(id, "a")
			w.started(a)
			w.finish(a, ci.JobSuccess)
			done++
		}
	}
	b.ReportMetric(float64(done)/time.Since(began).Seconds(), "jobs/s")
}
