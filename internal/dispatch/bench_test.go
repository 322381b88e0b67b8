package dispatch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
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
			if err := w.admit(tx, "n1", id, "requested", []string{"linux", fmt.Sprint("pool-", i%50)}); err != nil {
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
		w.pass(time.Second) // so that every pass counts the queue
		w.beat()
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

// BenchmarkJobs is jobs per second from insert over placement to the end, every step durable: 32 runs of one job are on their
// way at a time, 32 agents take them, the loop places them.
func BenchmarkJobs(b *testing.B) {
	const n = 32
	w := &world{t: b}
	w.now.Store(start)
	d := storetest.SQLiteDatabase(b)
	d.Config.Unsynced = false
	w.open(d.Open(b))
	w.d.Leader = always{w.term}
	for i := range n {
		w.static(fmt.Sprint("box", i), "linux")
	}
	loop, stop := context.WithCancel(ctx)
	var all, busy sync.WaitGroup
	all.Go(func() { _ = w.d.Run(loop) })
	todo := make(chan struct{}, n)
	for i := range n {
		all.Go(func() { w.serve(loop, fmt.Sprint("box", i), busy.Done) })
	}
	for range n {
		all.Go(func() {
			for range todo {
				w.insert(job("a", "linux"))
			}
		})
	}
	b.ResetTimer()
	began := time.Now()
	for b.Loop() {
		busy.Add(1)
		todo <- struct{}{}
	}
	busy.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "jobs/s")
	close(todo)
	stop()
	all.Wait()
}

// serve is an agent that succeeds at everything.
func (w *world) serve(ctx context.Context, agent string, done func()) {
	sub := w.st.Subscribe(store.TopicAssignments, agent)
	defer sub.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sub.C():
		}
		row, err := w.st.Read().FleetOpenAssignment(ctx, agent)
		if err != nil {
			continue
		}
		w.write(func(tx *store.Tx) error {
			_, err := w.runs.Started(tx, wire.JobStatus{JobID: row.JobID, Attempt: int(row.Attempt), Seq: 1}, agent)
			return err
		})
		w.write(func(tx *store.Tx) error {
			_, err := w.runs.Finish(tx, run.End{JobID: row.JobID, Attempt: int(row.Attempt), AgentID: agent, Status: ci.JobSuccess})
			return err
		})
		done()
	}
}
