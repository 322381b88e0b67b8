package run_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func raw(values ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, v := range values {
		out = append(out, json.RawMessage(v))
	}
	return out
}

func matrix(j lock.Job, name string, values ...string) lock.Job {
	j.Matrix = &lock.Matrix{Dimensions: map[string][]json.RawMessage{name: raw(values...)}, Order: []string{name}}
	return j
}

// TestXC3SameDeliverySixteenTimes: one dedup key makes one run.
func TestXC3SameDeliverySixteenTimes(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		n := newRun(job("a"))
		n.DedupKey = "d1:ci"
		ids := make([]string, 16)
		created := w.together(16, func(i int, tx *store.Tx) (bool, error) {
			id, created, err := w.s.Insert(tx, w.s.Plan(n))
			ids[i] = id
			return created, err
		})
		if created != 1 {
			t.Fatalf("%d runs were made", created)
		}
		for _, id := range ids {
			if id == "" || id != ids[0] {
				t.Fatalf("ids %v", ids)
			}
		}
		w.want(ids[0], "a=queued", ci.RunPending)
	})
}

func TestRunNumbers(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		other := newRun(job("a"))
		other.Repo = "acme/site"
		first, second, elsewhere := w.insert(newRun(job("a"))), w.insert(newRun(job("a"))), w.insert(other)
		if a, b, c := w.run(first).Number, w.run(second).Number, w.run(elsewhere).Number; a != 1 || b != 2 || c != 1 {
			t.Fatalf("numbers %d %d %d", a, b, c)
		}
	})
}

func TestMatrixFanOut(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		test := matrix(job("test"), "go", `"1.25"`, `"1.26"`)
		test.RunsOn.Labels = []string{"go-${{ matrix.go }}"}
		test.ContinueOnError = "matrix.go == '1.26'"
		after := withIf(job("after", on("test")), "needs.test.result == 'success' && needs.test.outputs.v == 'two'")
		id := w.insert(newRun(test, after))
		w.want(id, "test (1.25)=queued test (1.26)=queued after=pending", ci.RunPending)
		a, b := w.job(id, "test (1.25)"), w.job(id, "test (1.26)")
		if a.Labels != `["go-1.25"]` || b.Labels != `["go-1.26"]` || a.Shape == b.Shape {
			t.Fatalf("labels %s %s", a.Labels, b.Labels)
		}
		if a.ContinueOnError || !b.ContinueOnError || a.BaseName != "test" || a.FanoutTotal != 2 || b.FanoutIndex != 1 {
			t.Fatalf("%+v\n%+v", a, b)
		}
		w.work(a.ID, ci.JobSuccess, map[string]string{"v": "two"})
		if got := w.job(id, "after"); got.Status != string(ci.JobPending) {
			t.Fatalf("after is %s while a child is open", got.Status)
		}
		w.work(b.ID, ci.JobFailed, map[string]string{"v": ""}) // allowed; its empty output does not replace the other's
		w.want(id, "test (1.25)=success test (1.26)=failed after=queued", ci.RunRunning)
		c, err := w.s.AgentContexts(ctx, w.job(id, "after").ID)
		if err != nil {
			t.Fatal(err)
		}
		if string(c.Needs) != `{"test":{"outputs":{"v":"two"},"result":"success"}}` || string(c.Matrix) != "{}" {
			t.Fatalf("needs %s, matrix %s", c.Needs, c.Matrix)
		}
		kici := decode[map[string]any](t, string(c.Kici))
		if kici["run_number"] != "1" || kici["ref_name"] != "main" || kici["job"] != "after" || kici["event_name"] != "push" {
			t.Fatalf("kici %v", kici)
		}
	})
}

func TestInitFailures(t *testing.T) {
	container := job("a")
	container.Container = &lock.Container{Image: "${{ inputs.none }}"}
	empty := matrix(job("a"), "x")
	badLabel := job("a")
	badLabel.RunsOn.Labels = []string{"${{ fromJSON('[') }}"}
	both := job("a")
	both.RunsOn = lock.Selector{Labels: []string{"Linux"}, Exclude: []string{"linux"}}
	nothing := job("a")
	nothing.RunsOn.Labels = []string{"${{ inputs.none }}"}
	cases := map[string]struct {
		jobs           []lock.Job
		category, text string
		want           string
	}{
		"image evaluates to nothing":   {[]lock.Job{container, job("b")}, "dynamic_eval", "evaluates to nothing", "a=failed b=queued"},
		"a skipped job without image":  {[]lock.Job{withIf(container, "false"), job("b")}, "", "", "a=skipped b=queued"},
		"matrix without combinations":  {[]lock.Job{empty, job("b")}, "matrix_expansion", "the matrix of \"a\"", "a=failed b=queued"},
		"broken condition":             {[]lock.Job{withIf(job("a"), "1 +"), job("b")}, "dynamic_eval", "if: 1 +", "a=failed b=queued"},
		"broken label":                 {[]lock.Job{badLabel, job("b")}, "dynamic_eval", "runs-on", "a=failed b=queued"},
		"label required and excluded":  {[]lock.Job{both, job("b")}, "dynamic_eval", "both requires and excludes", "a=failed b=queued"},
		"runs-on evaluates to nothing": {[]lock.Job{nothing, job("b")}, "dynamic_eval", "no label at all", "a=failed b=queued"},
		"need that does not exist":     {[]lock.Job{job("a", on("x")), job("b")}, "lock_resolution", `needs "x"`, "a=failed b=queued"},
		"XC64 circle":                  {[]lock.Job{job("a", on("c")), job("c", on("a")), job("b")}, "lock_resolution", `"a" needs itself`, "a=failed c=failed b=queued"},
		"XC64 circle of one":           {[]lock.Job{job("a", on("a")), job("b")}, "lock_resolution", `"a" needs itself`, "a=failed b=queued"},
		"XC64 behind a circle":         {[]lock.Job{job("a", on("c")), job("c", on("a")), job("b"), job("d", on("a"))}, "lock_resolution", "itself", "a=failed c=failed b=queued d=skipped"},
		"XC64 one name twice":          {[]lock.Job{job("b"), job("a"), job("a")}, "", "", "b=queued a=queued a #2=failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, storetest.SQLite(t))
			id := w.insert(newRun(c.jobs...))
			w.want(id, c.want, ci.RunPending)
			if a := w.job(id, "a"); a.InitFailure != c.category || !strings.Contains(a.Error, c.text) {
				t.Fatalf("%q: %q", a.InitFailure, a.Error)
			}
			w.workAll(id, nil)
			if !ci.RunStatus(w.run(id).Status).Terminal() {
				t.Fatal("the run stays open")
			}
		})
	}
}

// TestXC65EmptyCondition: a run in which every job is skipped succeeds at once.
func TestXC65EverySkipped(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(withIf(job("a"), "false"), job("b", on("a", always...)), withIf(job("c", on("b")), "false")))
		w.workAll(id, nil)
		w.want(id, "a=skipped b=success c=skipped", ci.RunSuccess)
		id = w.insert(newRun(withIf(job("a"), "false")))
		w.want(id, "a=skipped", ci.RunSuccess)
	})
}

func TestRunWithoutJobs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		r := w.run(w.insert(newRun()))
		if r.Status != "failed" || r.FailureClass != "never_started" || !r.FinishedAt.Valid {
			t.Fatalf("%s %s", r.Status, r.FailureClass)
		}
	})
}

// TestXC20Unresolved: a lock that cannot be read is one failed run, whose reason is seen, and a lifecycle event.
func TestXC20Unresolved(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		f := run.FailedRun{
			OrgID: "acme", RoutingKey: "k", Repo: "acme/shop", Event: ci.Event{Type: "push", Title: "x"}, TriggerEvent: "push",
			DedupKey: "d1:?", InitFailure: "lock_resolution", Reason: "the lock file is not JSON",
		}
		ids := map[string]bool{}
		for range 2 {
			w.write(func(tx *store.Tx) error {
				id, _, err := w.s.InsertFailed(tx, f)
				ids[id] = true
				return err
			})
		}
		if len(ids) != 1 {
			t.Fatalf("%d runs", len(ids))
		}
		for id := range ids {
			r := w.run(id)
			if r.Workflow != "(unresolved workflow)" || r.Status != "failed" || r.FailureReason != f.Reason || r.InitFailure != "lock_resolution" {
				t.Fatalf("%+v", r)
			}
			if w.events(id)["__workflow_complete"] != 1 {
				t.Fatal("no lifecycle event")
			}
			if _, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id}); err == nil || !strings.Contains(err.Error(), "a commit does not change") {
				t.Fatalf("rerun: %v", err)
			}
		}
	})
}

// TestXC46LifecycleEvents: what they say, and at which depth; none beyond the limit (XC-40).
func TestXC46LifecycleEvents(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		n := newRun(job("a"), job("b", on("a")))
		n.ChainDepth = 2
		id := w.insert(n)
		w.work(w.job(id, "a").ID, ci.JobSuccess, map[string]string{"v": "1"})
		w.workAll(id, map[string]ci.JobStatus{"b": ci.JobFailed})
		rows, _ := w.st.Read().EventsOfRun(ctx, id)
		last := rows[len(rows)-1]
		if last.EventName != "__workflow_complete" || last.ChainDepth != 3 || last.ExpiresAt <= last.CreatedAt || last.SourceRepo != "acme/shop" {
			t.Fatalf("%+v", last)
		}
		body := decode[map[string]any](t, last.Payload)
		want := fmt.Sprintf(`{"conclusion":"failure","failureClass":"step_failure","jobResults":[{"name":"a","outputs":{"v":"1"},"status":"success"},{"name":"b","status":"failed"}],"runId":%q,"sourceRepo":"acme/shop","sourceRoutingKey":"generic:acme:1","status":"failed","workflowName":"ci"}`, id)
		delete(body, "duration")
		if got, _ := json.Marshal(body); string(got) != want {
			t.Fatalf("payload\n got %s\nwant %s", got, want)
		}
		n.ChainDepth = 9
		id = w.insert(n)
		w.workAll(id, nil)
		if e := w.events(id); len(e) != 0 {
			t.Fatalf("events at depth 10: %v", e)
		}
	})
}

// TestXC56CrashAfterRunRow: a run without jobs, which this build cannot make, is ended by the sweep; so is one that stands still.
func TestXC56Sweep(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		bare := w.insert(newRun(job("a")))
		stuck := w.insert(newRun(job("a"), job("b", on("a")), job("c", on("b"))))
		healthy := w.insert(newRun(job("a"), job("b", on("a"))))
		w.write(func(tx *store.Tx) error {
			if err := tx.DeleteJobsOfRun(ctx, bare); err != nil {
				return err
			}
			return tx.ForceJobStatus(ctx, db.ForceJobStatusParams{RunID: stuck, Name: "a", Status: "success", FinishedAt: sql.NullInt64{Int64: 1, Valid: true}})
		})
		ids, err := w.s.Unsettled(ctx, "", -1000, 10)
		if err != nil || len(ids) != 2 {
			t.Fatalf("unsettled %v, %v", ids, err)
		}
		for _, id := range append(ids, healthy) {
			moved := w.try(func(tx *store.Tx) (bool, error) { return w.s.Settle(tx, id) })
			if moved == (id == healthy) {
				t.Fatalf("run %s moved: %v", id, moved)
			}
		}
		w.want(bare, "", ci.RunFailed)
		if r := w.run(bare); r.FailureClass != "never_started" {
			t.Fatalf("class %s", r.FailureClass)
		}
		w.want(stuck, "a=success b=queued c=pending", ci.RunPending)
		if ids, _ := w.s.Unsettled(ctx, "", -1000, 10); len(ids) != 0 {
			t.Fatalf("still unsettled: %v", ids)
		}
	})
}

func wide(name string, needs ...lock.Need) lock.Job {
	values := make([]string, 256)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	j := matrix(job(name, needs...), "n", values...)
	return j
}

// What a matrix multiplies is bounded, with a reason, whatever a workflow writes.
func TestRunBounds(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	var many []lock.Job
	for i := range 17 {
		many = append(many, wide(fmt.Sprint("j", i)))
	}
	for text, jobs := range map[string][]lock.Job{
		"more than 4096 jobs":    many,
		"more than 100000 needs": {wide("a"), wide("b", on("a")), wide("c", on("b"))},
	} {
		r := w.run(w.insert(newRun(jobs...)))
		if r.Status != "failed" || r.InitFailure != "matrix_expansion" || !strings.Contains(r.FailureReason, text) {
			t.Fatalf("%s %s %q", r.Status, r.InitFailure, r.FailureReason)
		}
	}
}

// Two full matrices that need each other: 65,536 edges are made, met and read in bearable time.
func BenchmarkWideFanIn(b *testing.B) {
	w := newWorld(b, storetest.SQLite(b))
	for b.Loop() {
		id := w.insert(newRun(wide("a"), wide("b", on("a"))))
		rows, err := w.st.Read().WholeJobs(ctx, id)
		if err != nil {
			b.Fatal(err)
		}
		for _, j := range rows[:256] {
			w.work(j.ID, ci.JobSuccess, map[string]string{"v": "1"})
		}
		if got := w.job(id, "b (255)"); got.Status != string(ci.JobQueued) {
			b.Fatalf("b is %s", got.Status)
		}
	}
}

// A job's own image stands on its row, is part of its shape, and its registry is opened with what the job gives, which may be secret
// (CT-10, XC-118).
func TestJobImage(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		own := matrix(job("a"), "go", `"1.25"`, `"1.26"`)
		own.Container = &lock.Container{
			Image: "registry.test/go:${{ matrix.go }}", Credentials: &lock.Credentials{Username: "ci-${{ matrix.go }}", Password: "${{ secrets.REGISTRY }}"},
		}
		secrets := func(context.Context, string) (map[string]string, error) {
			return map[string]string{"REGISTRY": "hidden"}, nil
		}
		for _, c := range []struct {
			tier     ci.TrustTier
			password string
		}{{ci.TierTrusted, "hidden"}, {ci.TierUnknown, ""}} {
			n := newRun(own, job("b"))
			n.TrustTier = c.tier
			id := w.insert(n)
			first, second, plain := w.job(id, "a (1.25)"), w.job(id, "a (1.26)"), w.job(id, "b")
			if first.Image != "registry.test/go:1.25" || second.Image != "registry.test/go:1.26" || plain.Image != "" || first.Shape == second.Shape {
				t.Errorf("%q %q %q", first.Image, second.Image, plain.Image)
			}
			user, password, err := w.s.RegistryLogin(ctx, second.ID, secrets)
			if err != nil || user != "ci-1.26" || password != c.password {
				t.Errorf("%s: %q %q %v", c.tier, user, password, err)
			}
			if user, password, err := w.s.RegistryLogin(ctx, plain.ID, secrets); err != nil || user+password != "" {
				t.Errorf("%q %q %v", user, password, err)
			}
		}
	})
}
