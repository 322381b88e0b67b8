package harness

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

// stride is how many crash points are skipped between two that are tried, when KICI_TEST_CRASH_POINTS does not say "all".
const stride = 9

// TestCrashAtEveryCommit kills the server with SIGKILL at one commit of a delivery's life after the other, just before it and
// just after it, starts it again, and expects what would have happened without: one run, each step once, success, and
// nothing left. It goes on until a server survives the whole life, so no point is missed.
func TestCrashAtEveryCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("starts hundreds of servers")
	}
	engines(t, func(t *testing.T, databaseURL func(*testing.T) string) {
		for _, before := range []bool{false, true} {
			t.Run(map[bool]string{false: "after", true: "before"}[before], func(t *testing.T) {
				step := stride
				if os.Getenv("KICI_TEST_CRASH_POINTS") == "all" {
					step = 1
				}
				first := 1
				if before && step > 1 {
					first += step / 2 // other points than those just after a commit
				}
				for at := first; ; at += step {
					survived := false
					ok := t.Run(fmt.Sprintf("commit-%d", at), func(t *testing.T) {
						survived = crashOnce(t, databaseURL(t), before, at)
					})
					if survived || !ok {
						t.Logf("the life of a delivery takes fewer than %d commits", at)
						return
					}
					if at > 400 {
						t.Fatal("still crashing after 400 commits: the crash points do not end")
					}
				}
			})
		}
	})
}

// crashOnce reports whether the server survived because the life took fewer commits.
func crashOnce(t *testing.T, databaseURL string, before bool, at int) (survived bool) {
	w := newWorld(t, databaseURL, crashWorkflow)
	w.role.Before = before
	w.start(at)
	if err := os.WriteFile(w.role.Armed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	status := w.push("delivery-1")
	w.until("the crash, or the end of the run", 60*time.Second, func() bool {
		if w.dead() {
			return true
		}
		_, ok := w.ended()
		return ok && w.settled() == nil
	})
	survived = !w.dead()
	if err := os.Remove(w.role.Armed); err != nil {
		t.Fatal(err)
	}
	if !survived {
		w.start(0)
	}
	if status != http.StatusAccepted && status != 0 {
		t.Fatalf("the delivery was answered with %d", status)
	}
	// The sender repeats what was not answered; one that was answered may be repeated too, and must change nothing.
	again := w.push("delivery-1")
	if again == 0 && survived { // the crash came in the moment in which it was called off
		w.until("the server is dead", 10*time.Second, w.dead)
		survived = false
		w.start(0)
		again = w.push("delivery-1")
	}
	if again != http.StatusAccepted && again != http.StatusOK || status == http.StatusAccepted && again != http.StatusOK {
		t.Fatalf("the delivery was answered with %d, then with %d", status, again)
	}
	w.expectOneCleanRun()
	w.stop()
	return survived
}

// expectOneCleanRun is what must hold in the end, whatever happened in between.
func (w *world) expectOneCleanRun() {
	w.t.Helper()
	w.until("the run ends", 90*time.Second, func() bool { _, ok := w.ended(); return ok })
	d, _ := w.ended()
	if d.Status != "success" {
		w.t.Errorf("the run is %s: %s", d.Status, d.FailureReason)
		for _, j := range d.Jobs {
			w.t.Logf("job %s: %s attempt %d: %s", j.Name, j.Status, j.Attempt, j.Error)
		}
		w.t.Logf("%s", w.log)
	}
	list, err := w.api.Runs(w.t.Context(), allRuns())
	if err != nil {
		w.t.Fatal(err)
	}
	if len(list.Runs) != 1 {
		w.t.Errorf("there are %d runs", len(list.Runs))
	}
	if got, want := w.ran(), []string{"first", "second hello"}; !slices.Equal(got, want) {
		w.t.Errorf("the steps left %q, want %q", got, want)
	}
	w.expectNothingLeft()
}
