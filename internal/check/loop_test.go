package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
)

func TestQuickRunPostsTwoStates(t *testing.T) {
	inBubble(t, func(w *world) {
		id := w.insert(newRun(job("test")))
		wait(100 * time.Millisecond)
		j := w.jobs(id)[0].ID
		w.begin(j)
		wait(200 * time.Millisecond)
		w.end(j, ci.JobSuccess)
		wait(time.Hour)
		w.forge().want(w.t, "0s kici/ci pending", "0s kici/ci/job/test pending", "300ms kici/ci success", "300ms kici/ci/job/test success")
		w.wantStatuses(id, "kici/ci success/success 0", "kici/ci/job/test success/success 0")
		if r := w.row(id); r.ChecksDone != r.ChecksChanged || r.ChecksLease != 0 {
			w.t.Errorf("left over: %+v", r)
		}
		if w.counted("create") != 2 || w.counted("update") != 0 || w.counted("complete") != 2 {
			w.t.Errorf("counted %d, %d, %d", w.counted("create"), w.counted("update"), w.counted("complete"))
		}
	})
}

func TestChangesAreGathered(t *testing.T) {
	inBubble(t, func(w *world) {
		id := w.insert(newRun(job("a"), job("b"), job("c")))
		wait(100 * time.Millisecond)
		for _, j := range w.jobs(id) { // three starts, three ends within a second
			w.begin(j.ID)
			wait(100 * time.Millisecond)
		}
		w.end(w.jobs(id)[0].ID, ci.JobSuccess)
		wait(10 * time.Second)
		w.end(w.jobs(id)[1].ID, ci.JobFailed)
		wait(time.Minute)
		w.end(w.jobs(id)[2].ID, ci.JobSuccess)
		wait(time.Hour)
		w.forge().want(w.t,
			"0s kici/ci pending", "0s kici/ci/job/a pending", "0s kici/ci/job/b pending", "0s kici/ci/job/c pending",
			"2s kici/ci running", "2s kici/ci/job/a success", "2s kici/ci/job/b running", "2s kici/ci/job/c running",
			"10.4s kici/ci/job/b failure", "1m10.4s kici/ci failure", "1m10.4s kici/ci/job/c success")
	})
}

func TestRunThatNeverHadJobs(t *testing.T) {
	inBubble(t, func(w *world) {
		n := newRun()
		w.write(func(tx *store.Tx) error {
			_, _, err := w.runs.InsertFailed(tx, run.FailedRun{
				OrgID: n.OrgID, RoutingKey: n.RoutingKey, Repo: n.Repo, Event: n.Event, TriggerEvent: "push", InitFailure: "lock_resolution",
				Reason: "ci.yaml:3:1: no such key", Checks: true,
			})
			return err
		})
		wait(time.Minute)
		w.forge().want(w.t, "0s kici/workflows failure")
	})
}

func TestRunsWithoutStatuses(t *testing.T) {
	inBubble(t, func(w *world) {
		n := newRun(job("test"))
		n.Checks = false
		plain := w.insert(n)
		n.Checks, n.Event.SHA = true, ""
		nowhere := w.insert(n)
		w.cancel(plain)
		w.cancel(nowhere)
		n = newRun(job("test"))
		n.RoutingKey = "github:deleted"
		gone := w.insert(n)
		wait(time.Minute)
		w.shows(ShowOff)
		off := w.insert(newRun(job("test")))
		wait(time.Minute)
		w.forge().want(w.t)
		for _, id := range []string{plain, nowhere} {
			if r := w.row(id); r.ChecksChanged != 0 {
				w.t.Errorf("changes are counted for a run that shows nothing: %d", r.ChecksChanged)
			}
		}
		for _, id := range []string{gone, off} {
			if r := w.row(id); r.ChecksDone != r.ChecksChanged {
				w.t.Errorf("still to be done: %+v", r)
			}
		}
		const why = " (gave up)"
		w.wantStatuses(gone, "kici/ci /pending 1 "+errGone.Error()+why, "kici/ci/job/test /pending 1 "+errGone.Error()+why)
		w.wantStatuses(off)
	})
}

func TestXC74ProviderDown(t *testing.T) {
	inBubble(t, func(w *world) {
		away := fmt.Errorf("%w: connection refused", source.ErrUnreachable)
		w.forge().fail(away)
		id := w.insert(newRun(job("test")))
		wait(time.Second)
		j := w.jobs(id)[0].ID
		w.begin(j)
		wait(10 * time.Minute)
		w.wantStatuses(id, fmt.Sprintf("kici/ci /running %d %v", w.attempts(id), away), fmt.Sprintf("kici/ci/job/test /running %d %v", w.attempts(id), away))
		w.end(j, ci.JobSuccess)
		other := newRun(job("late"))
		other.Workflow.Name = "late"
		late := w.insert(other)
		wait(50 * time.Minute)
		if r := w.row(id); r.Status != string(ci.RunSuccess) {
			w.t.Fatalf("the run is %s", r.Status)
		}
		if n := w.forge().asked(); n > 25 {
			w.t.Errorf("%d requests in an hour to a forge that is down", n)
		}
		w.forge().fail(nil)
		wait(20 * time.Minute)
		if got := w.forge().lasts(); len(got) != 4 || got["kici/ci"] != success || got["kici/ci/job/test"] != success || got["kici/late"] != pending {
			w.t.Errorf("last states %v", got)
		}
		if n := w.forge().posts(); n != 4 {
			w.t.Errorf("%d posts, want only the latest state of each", n)
		}
		w.wantStatuses(id, "kici/ci success/success 0", "kici/ci/job/test success/success 0")
		w.wantStatuses(late, "kici/late pending/pending 0", "kici/late/job/late pending/pending 0")
	})
}

func (w *world) attempts(id string) int64 {
	rows, err := w.st.Read().CommitStatuses(ctx, id)
	if err != nil || len(rows) == 0 {
		w.t.Fatalf("no statuses: %v", err)
	}
	return rows[0].Attempts
}

func TestRateLimit(t *testing.T) {
	inBubble(t, func(w *world) {
		reset := time.Now().Add(17 * time.Minute)
		w.forge().fail(&source.RetryAt{At: reset, Cause: fmt.Errorf("%w: rate limit", source.ErrUnreachable)})
		other := w.another("github:2")
		var ids []string
		for i := range 20 {
			n := newRun(job("test"))
			n.Workflow.Name = fmt.Sprint("w", i)
			ids = append(ids, w.insert(n))
		}
		wait(time.Second)
		n := newRun(job("test"))
		n.RoutingKey = "github:2"
		w.insert(n)
		wait(15 * time.Minute)
		other.want(w.t, "1s kici/ci pending", "1s kici/ci/job/test pending")
		for _, id := range ids { // what ends meanwhile does not ask either
			w.cancel(id)
		}
		wait(time.Minute)
		if n := w.forge().asked(); n > perSource {
			w.t.Errorf("%d requests before the limit was reset", n)
		}
		w.forge().fail(nil)
		wait(30 * time.Second)
		if n := w.forge().posts(); n > 0 {
			w.t.Errorf("%d posts before the limit was reset", n)
		}
		wait(5 * time.Minute)
		if n := w.forge().posts(); n != 40 {
			w.t.Errorf("%d posts after the limit was reset, want 40", n)
		}
		if w.failures("rate_limited") == 0 || w.forge().atMost() > perSource {
			w.t.Errorf("%d limits counted, %d posts at once", w.failures("rate_limited"), w.forge().atMost())
		}
	})
}

func TestDenied(t *testing.T) {
	inBubble(t, func(w *world) {
		denied := fmt.Errorf("%w: 401", source.ErrDenied)
		w.forge().fail(denied)
		id := w.insert(newRun(job("test")))
		wait(time.Hour)
		if n := w.forge().asked(); n != maxAttempts {
			w.t.Fatalf("%d requests with a token that is refused", n)
		}
		w.wantStatuses(id, "kici/ci /pending 5 "+denied.Error()+" (gave up)", "kici/ci/job/test /pending 5 "+denied.Error()+" (gave up)")
		if r := w.row(id); r.ChecksDone != r.ChecksChanged {
			w.t.Error("it goes on")
		}
		// A later state is tried once more, and works after the token was replaced.
		j := w.jobs(id)[0].ID
		w.begin(j)
		wait(time.Hour)
		if n := w.forge().asked(); n != maxAttempts+1 {
			w.t.Errorf("%d requests", n)
		}
		w.forge().fail(nil)
		w.end(j, ci.JobSuccess)
		wait(time.Hour)
		w.wantStatuses(id, "kici/ci success/success 0", "kici/ci/job/test success/success 0")
	})
}

func TestNewTokenIsTriedAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.forge().fail(source.ErrDenied)
		id := w.insert(newRun(job("test")))
		wait(20 * time.Second)
		w.forge().fail(nil)
		w.st.Publish(store.TopicSources, "acme")
		wait(time.Second)
		w.wantStatuses(id, "kici/ci pending/pending 0", "kici/ci/job/test pending/pending 0")
	})
}

func TestOneRefusedStatus(t *testing.T) {
	inBubble(t, func(w *world) {
		w.forge().set(func(s source.CommitStatus) error {
			if s.Context == "kici/ci" {
				return source.ErrInvalid
			}
			return nil
		})
		id := w.insert(newRun(job("test")))
		wait(time.Hour)
		w.wantStatuses(id, "kici/ci /pending 5 invalid delivery (gave up)", "kici/ci/job/test pending/pending 0")
		if w.failures("refused") != maxAttempts || w.forge().asked() != maxAttempts+1 {
			w.t.Errorf("%d refusals, %d requests", w.failures("refused"), w.forge().asked())
		}
	})
}

func TestGivesUpAfterADay(t *testing.T) {
	inBubble(t, func(w *world) {
		w.forge().fail(source.ErrUnreachable)
		id := w.insert(newRun(job("test")))
		wait(23 * time.Hour)
		if r := w.row(id); r.ChecksDone == r.ChecksChanged {
			w.t.Fatal("given up too early")
		}
		wait(2 * time.Hour)
		asked := w.forge().asked()
		wait(24 * time.Hour)
		if r := w.row(id); r.ChecksDone != r.ChecksChanged || w.forge().asked() != asked {
			w.t.Error("it goes on")
		}
	})
}

func TestSlowForgeHoldsUpOnlyItself(t *testing.T) {
	inBubble(t, func(w *world) {
		w.forge().slow(func() time.Duration { return time.Hour }) // each request runs into its limit
		for i := range 50 {
			n := newRun(job("test"))
			n.Workflow.Name = fmt.Sprint("w", i)
			w.insert(n)
		}
		wait(time.Second)
		n := newRun(job("test"))
		n.RoutingKey = "github:2"
		other := w.another("github:2")
		w.insert(n)
		wait(time.Second)
		other.want(w.t, "0s kici/ci pending", "0s kici/ci/job/test pending")
		if w.forge().atMost() > perSource {
			w.t.Errorf("%d requests at once", w.forge().atMost())
		}
	})
}

func TestManyJobs(t *testing.T) {
	inBubble(t, func(w *world) {
		n := newRun()
		for i := range 2000 {
			n.Workflow.Jobs = append(n.Workflow.Jobs, job(fmt.Sprint("j", i)))
		}
		id := w.insert(n)
		wait(5 * time.Second)
		rows := w.jobs(id)
		for _, i := range []int{3, 1999} {
			w.begin(rows[i].ID)
			wait(5 * time.Second) // else a pass may come between, or not
			w.end(rows[i].ID, ci.JobFailed)
			wait(5 * time.Second)
		}
		w.cancel(id)
		wait(time.Minute)
		w.forge().want(w.t, "0s kici/ci pending", "5s kici/ci running", "10s kici/ci/job/j3 failure", "20s kici/ci/job/j1999 failure", "25s kici/ci error")
	})
}

func TestRerunTakesOver(t *testing.T) {
	inBubble(t, func(w *world) {
		old := w.insert(newRun(job("test")))
		wait(time.Minute)
		newer := w.insert(newRun(job("test")))
		wait(time.Minute)
		w.cancel(old) // late
		wait(time.Minute)
		w.forge().want(w.t, "0s kici/ci pending", "0s kici/ci/job/test pending", "1m0s kici/ci pending", "1m0s kici/ci/job/test pending")
		const why = "superseded: run #2 of the same commit is shown here"
		w.wantStatuses(old, "kici/ci pending/pending 0 "+why, "kici/ci/job/test pending/pending 0 "+why)
		w.wantStatuses(newer, "kici/ci pending/pending 0", "kici/ci/job/test pending/pending 0")
		n := newRun(job("test"))
		n.Event.SHA = "def" // another commit is another place
		w.insert(n)
		wait(time.Minute)
		if n := w.forge().posts(); n != 6 {
			w.t.Errorf("%d posts", n)
		}
	})
}

// What was posted before the server stopped is recorded; the next start goes on with the rest.
func TestStopInTheMiddle(t *testing.T) {
	inBubble(t, func(w *world) {
		w.forge().slow(func() time.Duration { return time.Second })
		id := w.insert(newRun(job("a"), job("b")))
		wait(1500 * time.Millisecond)
		w.stop()
		w.wantStatuses(id, "kici/ci pending/pending 0")
		w.start(w.newService())
		wait(time.Minute)
		w.wantStatuses(id, "kici/ci pending/pending 0", "kici/ci/job/a pending/pending 0", "kici/ci/job/b pending/pending 0")
		w.forge().want(w.t, "1s kici/ci pending", "2.5s kici/ci/job/a pending", "3.5s kici/ci/job/b pending")
	})
}
