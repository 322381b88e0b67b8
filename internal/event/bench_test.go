package event

import (
	"testing"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

// benchRoute measures events that are there already: emitting them is not counted.
func benchRoute(b *testing.B, emit Emit, register func(w *world)) {
	d := storetest.SQLiteDatabase(b)
	d.Config.Unsynced = false // as a server
	w := newWorld(b, d.Open(b))
	register(w)
	if emit.SourceRoutingKey == "" {
		emit.SourceRoutingKey, emit.SourceRepo = keyA, "a"
	}
	emit.OrgID = "acme"
	for left := b.N; left > 0; {
		n := min(left, 500)
		left -= n
		w.write(func(tx *store.Tx) error {
			for range n {
				if _, err := w.s.EmitTx(tx, emit); err != nil {
					return err
				}
			}
			return nil
		})
	}
	b.ResetTimer()
	w.look()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	if open, err := w.st.Read().OpenEventKinds(ctx, 1<<60, 5, 10); err != nil || len(open) != 0 {
		b.Fatalf("left over: %v %v", open, err)
	}
}

const jobPayload = `{"workflowName":"ci","jobName":"build","runId":"0197a3c4-5e1f-7a10-9d54-0242ac120002","jobId":"0197a3c4-5e1f-7a10-9d54-0242ac120003","status":"success","duration":1200,"stepResults":[{"name":"make","status":"success","exitCode":0,"duration":1000}]}`

// BenchmarkRouteUnmatched is the two events of every job while nobody waits for any.
func BenchmarkRouteUnmatched(b *testing.B) {
	benchRoute(b, Emit{Name: JobComplete, Payload: []byte(jobPayload)}, func(w *world) { w.register(keyA, "a", flow("w1", onEvent("done"))) })
}

// BenchmarkRouteFiltered is events for which somebody waits, but not for these.
func BenchmarkRouteFiltered(b *testing.B) {
	benchRoute(b, Emit{Name: JobComplete, Payload: []byte(jobPayload)}, func(w *world) {
		w.register(keyA, "a", flow("w1", onLifecycle("job_failed")))
	})
}

// BenchmarkRouteMatched is events that start a run of one job each.
func BenchmarkRouteMatched(b *testing.B) {
	benchRoute(b, Emit{Name: "done"}, func(w *world) { w.register(keyA, "a", flow("w1", onEvent("done"))) })
}
