package read_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

var scope = read.Scope{OrgID: readtest.Org}

func reads(st *store.Store) *read.Reads {
	return read.New(st, read.Config{Now: time.Now, BaseURL: func() string { return "http://ci" }})
}

func names(l client.RunList) []string {
	out := []string{}
	for _, r := range l.Runs {
		out = append(out, r.Title)
	}
	return out
}

func TestRunFilters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := readtest.New(t, st)
		w.Run(readtest.NewRun{Title: "one", Branch: "main"})
		w.Run(readtest.NewRun{Title: "50% off_er", Branch: "dev"})
		w.Run(readtest.NewRun{Title: "three", Repo: "acme/site", Key: readtest.Other, Workflow: "deploy"})
		done := w.Run(readtest.NewRun{Title: "four"})
		if _, err := w.Runs.Cancel(context.Background(), cancelOf(done)); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			name string
			s    read.Scope
			f    read.RunFilter
			want []string
		}{
			{"all, newest first", scope, read.RunFilter{}, []string{"four", "three", "50% off_er", "one"}},
			{"status", scope, read.RunFilter{Statuses: []string{"cancelled"}}, []string{"four"}},
			{"statuses", scope, read.RunFilter{Statuses: []string{"pending", "cancelled"}}, []string{"four", "three", "50% off_er", "one"}},
			{"branch", scope, read.RunFilter{Branch: "dev"}, []string{"50% off_er"}},
			{"actor", scope, read.RunFilter{Actor: "ada", Branch: "dev"}, []string{"50% off_er"}},
			{"other actor", scope, read.RunFilter{Actor: "bob"}, []string{}},
			{"event", scope, read.RunFilter{Event: "push", Branch: "dev"}, []string{"50% off_er"}},
			{"source", scope, read.RunFilter{RoutingKey: readtest.Key}, []string{"four", "50% off_er", "one"}},
			{"other source", scope, read.RunFilter{RoutingKey: "generic:default:else"}, []string{}},
			{"event is no pattern", scope, read.RunFilter{Event: "pus%"}, []string{}},
			{"repo", scope, read.RunFilter{Repo: "acme/site"}, []string{"three"}},
			{"workflow", scope, read.RunFilter{Workflow: "deploy"}, []string{"three"}},
			{"text is no pattern", scope, read.RunFilter{Text: "50%"}, []string{"50% off_er"}},
			{"text underscore", scope, read.RunFilter{Text: "f_e"}, []string{"50% off_er"}},
			{"text percent alone", scope, read.RunFilter{Text: "e%o"}, []string{}},
			{"text any case", scope, read.RunFilter{Text: "THREE"}, []string{"three"}},
			{"text number", scope, read.RunFilter{Text: "#2"}, []string{"50% off_er"}},
			{"since", scope, read.RunFilter{Since: time.Now().Add(time.Hour).UnixMilli()}, []string{}},
			{"other key", read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}, read.RunFilter{}, []string{"three"}},
			{"other organisation", read.Scope{OrgID: "elsewhere"}, read.RunFilter{}, []string{}},
		} {
			got, err := reads(st).Runs(context.Background(), tc.s, tc.f)
			if err != nil || !slices.Equal(names(got), tc.want) {
				t.Errorf("%s: got %q, %v; want %q", tc.name, names(got), err, tc.want)
			}
		}
		_, err := reads(st).Runs(context.Background(), scope, read.RunFilter{Statuses: []string{"nope"}})
		if !errors.Is(err, read.ErrInvalid) || !strings.Contains(err.Error(), "cancelling") {
			t.Errorf("unknown status: %v", err)
		}
		if _, err = reads(st).Runs(context.Background(), scope, read.RunFilter{Cursor: "junk"}); !errors.Is(err, read.ErrInvalid) {
			t.Errorf("foreign cursor: %v", err)
		}
	})
}

// Pages put together are the list, also while runs are added at its head.
func TestRunPagesAreStable(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := readtest.New(t, st)
		w.Many(57)
		var got []string
		f := read.RunFilter{Limit: 10}
		for {
			page, err := reads(st).Runs(context.Background(), scope, f)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Runs) > 10 {
				t.Fatalf("a page has %d runs", len(page.Runs))
			}
			got = append(got, names(page)...)
			if page.NextCursor == "" {
				break
			}
			f.Cursor = page.NextCursor
			w.Run(readtest.NewRun{Repo: "acme/new"})
		}
		want := []string{}
		for i := range 57 {
			want = append(want, fmt.Sprintf("commit %d", 56-i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages give %q", got)
		}
	})
}

// A page with filters looks at the last 10,000 runs and says how to go on: what it costs does not grow with the list. That each
// look goes along an index is a test of storetest.
func TestRunListLooksAtABoundedWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("inserts 10,000 runs")
	}
	st := storetest.SQLite(t)
	w := readtest.New(t, st)
	w.Many(10_050) // the oldest is "commit 0"
	ctx, r := context.Background(), reads(st)
	for _, f := range []read.RunFilter{{Text: "commit 7"}, {Text: "nowhere"}, {Statuses: []string{"failed"}}, {Branch: "x"}, {Actor: "x"}, {Event: "x"}} {
		got, err := r.Runs(ctx, scope, f)
		if err != nil {
			t.Fatal(err)
		}
		if f.Text == "commit 7" {
			if len(got.Runs) != read.DefaultLimit || got.NextCursor == "" {
				t.Errorf("%+v: %d runs, cursor %q", f, len(got.Runs), got.NextCursor)
			}
			continue
		}
		if len(got.Runs) != 0 || got.NextCursor == "" {
			t.Errorf("%+v: %d runs, cursor %q; wanted none, and how to look further", f, len(got.Runs), got.NextCursor)
		}
		f.Cursor = got.NextCursor
		if got, err = r.Runs(ctx, scope, f); err != nil || len(got.Runs) != 0 || got.NextCursor != "" {
			t.Errorf("%+v beyond the window: %d runs, cursor %q, %v", f, len(got.Runs), got.NextCursor, err)
		}
	}
	f := read.RunFilter{Text: "commit 49", Branch: "main"} // 4900 to 4999, 490 to 499, 49
	seen := 0
	for {
		got, err := r.Runs(ctx, scope, f)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(got.Runs)
		if f.Cursor = got.NextCursor; f.Cursor == "" {
			break
		}
	}
	if seen != 111 {
		t.Errorf("found %d of 111 runs", seen)
	}
}

func TestOverview(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := readtest.New(t, st)
		ctx, r := context.Background(), reads(st)
		if got, err := r.Overview(ctx, scope); err != nil || got != (read.Overview{}) {
			t.Errorf("of nothing: %+v, %v", got, err)
		}
		w.Scaler(4)
		w.Run(readtest.NewRun{Key: readtest.Other})
		at := w.Run(readtest.NewRun{})
		bad := w.Run(readtest.NewRun{})
		for id, agent := range map[string]string{at: "a-1", bad: "a-2"} {
			job := w.JobID(id, "build")
			w.Agent(agent, job)
			w.Online(agent)
			w.Assign(id, job, agent)
			w.Start(id, job, agent)
			if id == bad {
				w.Finish(job, agent, ci.JobFailed)
			}
		}
		got, err := r.Overview(ctx, scope)
		if err != nil || got.Running != 1 || got.Waiting != 1 || got.LastFailure == nil || got.LastFailedRun != bad {
			t.Errorf("%+v, %v", got, err)
		}
		got, err = r.Overview(ctx, read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other})
		if err != nil || got.Running != 0 || got.Waiting != 1 || got.LastFailure != nil {
			t.Errorf("of one key: %+v, %v", got, err)
		}
	})
}

func TestRunReferences(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := readtest.New(t, st)
		a := w.Run(readtest.NewRun{})                                       // acme/shop#1
		b := w.Run(readtest.NewRun{})                                       // acme/shop#2
		c := w.Run(readtest.NewRun{Repo: "acme/site", Key: readtest.Other}) // acme/site#1
		r := reads(st)
		for ref, want := range map[string]string{
			a: a, a[:35]: a, "acme/shop#1": a, "acme/shop#2": b, "#2": b, "2": b, "acme/site#1": c, " acme/site#1 ": c, strings.ToUpper(a): a,
		} {
			if got, err := r.RunID(context.Background(), scope, ref); err != nil || got != want {
				t.Errorf("%q: %s, %v; want %s", ref, got, err, want)
			}
		}
		for ref, want := range map[string]error{
			"1": read.ErrInvalid, "#3": read.ErrNotFound, "acme/shop#9": read.ErrNotFound, "acme": read.ErrNotFound, "": read.ErrNotFound,
			a[:4]: read.ErrNotFound, "%": read.ErrNotFound, a[:8]: read.ErrInvalid, "ffffffff": read.ErrNotFound,
			"acme/shop#0": read.ErrNotFound, "acme/shop#-1": read.ErrNotFound, "acme/shop#99999999999999999999": read.ErrNotFound,
		} {
			if got, err := r.RunID(context.Background(), scope, ref); !errors.Is(err, want) {
				t.Errorf("%q: %s, %v; want %v", ref, got, err, want)
			}
		}
		if _, err := r.RunID(context.Background(), read.Scope{OrgID: "elsewhere"}, a); !errors.Is(err, read.ErrNotFound) {
			t.Errorf("other organisation: %v", err)
		}
		if _, err := r.Run(context.Background(), read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}, a); !errors.Is(err, read.ErrForbidden) {
			t.Errorf("other key: %v", err)
		}
	})
}

func jobByName(t *testing.T, d client.RunDetail, name string) client.Job {
	t.Helper()
	i := slices.IndexFunc(d.Jobs, func(j client.Job) bool { return j.Name == name })
	if i < 0 {
		t.Fatalf("no job %s", name)
	}
	return d.Jobs[i]
}

// A bare job name means the job of the newest run that has one of that name.
func TestJobByBareName(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := context.Background()
		w, r := readtest.New(t, st), reads(st)
		first := w.Run(readtest.NewRun{Jobs: []lock.Job{readtest.Job("build"), readtest.Job("lint")}})
		second := w.Run(readtest.NewRun{Jobs: []lock.Job{readtest.Job("build")}})
		for name, run := range map[string]string{"build": second, "lint": first} {
			j, err := r.Job(ctx, scope, name)
			if err != nil || j.RunID != run || j.Name != name {
				t.Errorf("%s: job %s of run %s (%v), want one of %s", name, j.Name, j.RunID, err, run)
			}
		}
		if _, err := r.Job(ctx, scope, "deploy"); !errors.Is(err, read.ErrNotFound) {
			t.Errorf("unknown name: %v", err)
		}
		if _, err := r.Job(ctx, read.Scope{OrgID: scope.OrgID, RoutingKey: "generic:other"}, "build"); !errors.Is(err, read.ErrNotFound) {
			t.Errorf("another routing key: %v", err)
		}
	})
}

// One run through its life, as lists and details tell it.
func TestRunDetail(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := context.Background()
		w, r := readtest.New(t, st), reads(st)
		w.Scaler(2)
		id := w.Run(readtest.NewRun{Jobs: []lock.Job{
			readtest.Job("build"), readtest.Job("lint"), readtest.Job("test", "build"), readtest.Job("deploy", "test", "lint"),
		}})
		build := w.JobID(id, "build")
		w.Reasons(build,
			placement.Reason{Kind: placement.ReasonNoLabels, NodeID: "other", Scaler: "mac", Text: "mac has no label linux"},
			placement.Reason{Kind: placement.ReasonCap, NodeID: readtest.Node, Scaler: "local", Text: "local is full: 2 of 2 agents", Until: 5})
		d, err := r.Run(ctx, scope, id)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]struct {
			level int
			why   string
		}{
			"build": {0, "local is full: 2 of 2 agents"}, "lint": {0, "local is full: 2 of 2 agents"},
			"test": {1, "waits for build"}, "deploy": {2, "waits for lint and test"},
		} {
			if j := jobByName(t, d, name); j.Level != want.level || j.Why != want.why {
				t.Errorf("%s: level %d, why %q; want %+v", name, j.Level, j.Why, want)
			}
		}
		if deploy := jobByName(t, d, "deploy"); len(deploy.Needs) != 2 {
			t.Errorf("deploy needs %v", deploy.Needs)
		}

		w.Agent("scaler-bm-1", build)
		if got := why(t, r, build); got.Headline != "agent scaler-bm-1 is about to be started for it by local on hydra" || got.Reasons[0].Kind != "booting" {
			t.Errorf("bound: %+v", got)
		}
		w.Online("scaler-bm-1")
		w.Assign(id, build, "scaler-bm-1")
		if got := why(t, r, build); got.Headline != "handed to agent scaler-bm-1, which has not answered yet" {
			t.Errorf("assigned: %+v", got)
		}
		w.Start(id, build, "scaler-bm-1")
		w.Step(id, build, "scaler-bm-1", wire.StepStatus{Seq: 2, StepIndex: 0, Name: "set up", Status: "success", StartedAt: 1000, FinishedAt: 1500})
		w.Step(id, build, "scaler-bm-1", wire.StepStatus{Seq: 3, StepIndex: 1, Name: "compile", Status: "running", StartedAt: 1500})
		if got := why(t, r, build); got.Headline != "runs on agent scaler-bm-1 (local on hydra)" {
			t.Errorf("running: %+v", got)
		}
		j, err := r.Job(ctx, scope, id+"/build")
		if err != nil {
			t.Fatal(err)
		}
		var steps []string
		for _, s := range j.Steps {
			steps = append(steps, fmt.Sprintf("%d %s %s", s.Index, s.Name, s.Status))
		}
		if want := []string{"0 set up success", "1 compile running", "2 Run make test pending"}; !slices.Equal(steps, want) {
			t.Errorf("steps %q, want %q", steps, want)
		}
		if *j.Steps[0].DurationMs != 500 || j.Scaler != "local" || j.Node != "hydra" {
			t.Errorf("job %+v", j)
		}

		code := 2
		w.Step(id, build, "scaler-bm-1", wire.StepStatus{Seq: 4, StepIndex: 1, Name: "compile", Status: "failed", StartedAt: 1500, FinishedAt: 2000, ExitCode: &code})
		w.Finish(build, "scaler-bm-1", ci.JobFailed)
		if got := why(t, r, build); got.Headline != `step "compile" failed with exit code 2` {
			t.Errorf("failed: %+v", got)
		}
		got := why(t, r, w.JobID(id, "test"))
		if got.Status != "skipped" || !strings.Contains(got.Headline, "build") {
			t.Errorf("skipped: %+v", got)
		}
		list, err := r.Runs(ctx, scope, read.RunFilter{})
		if err != nil || list.Runs[0].StartedAt == nil || list.Runs[0].URL != "http://ci/runs/"+id {
			t.Errorf("list %+v, %v", list, err)
		}
	})
}

func why(t *testing.T, r *read.Reads, job string) client.Why {
	t.Helper()
	w, err := r.Why(context.Background(), scope, job)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestQueue(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := context.Background()
		w, r := readtest.New(t, st), reads(st)
		if q, err := r.Queue(ctx, scope, read.QueueFilter{}); err != nil || q.Waiting != 0 || q.OldestAt != nil {
			t.Errorf("empty queue: %+v, %v", q, err)
		}
		var want []string
		for i := range 7 {
			key := readtest.Key
			if i == 6 {
				key = readtest.Other
			}
			id := w.Run(readtest.NewRun{Key: key, Title: fmt.Sprint(i)})
			want = append(want, w.JobID(id, "build"))
		}
		w.Reasons(want[0], placement.Reason{Kind: placement.ReasonNothing, Text: "no agent and no scaler exists"})
		var got []string
		f := read.QueueFilter{Limit: 3}
		for {
			q, err := r.Queue(ctx, scope, f)
			if err != nil || q.Waiting != 7 {
				t.Fatalf("%+v, %v", q, err)
			}
			for _, it := range q.Items {
				got = append(got, it.JobID)
				if it.Why != "no agent and no scaler exists" || len(it.Reasons) != 1 || it.JobName != "build" {
					t.Errorf("item %+v", it)
				}
			}
			if f.Cursor = q.NextCursor; f.Cursor == "" {
				break
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("queue %v, want %v", got, want)
		}
		q, err := r.Queue(ctx, read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}, read.QueueFilter{})
		if err != nil || q.Waiting != 1 || len(q.Items) != 1 {
			t.Errorf("scoped queue: %+v, %v", q, err)
		}
	})
}

func TestAgentsAndScalers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := context.Background()
		w, r := readtest.New(t, st), reads(st)
		w.Scaler(2)
		id := w.Run(readtest.NewRun{})
		build := w.JobID(id, "build")
		w.Agent("scaler-bm-1", build)
		w.Agent("scaler-bm-2", "")
		list, err := r.Agents(ctx, scope, read.AgentFilter{})
		if err != nil || len(list.Agents) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		a, err := r.Agent(ctx, scope, "scaler-bm-1")
		if err != nil || a.JobName != "build" || a.RunNumber != 1 || a.NodeName != "hydra" || a.Connected {
			t.Errorf("agent %+v, %v", a, err)
		}
		a, err = r.Agent(ctx, read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}, "scaler-bm-1")
		if err != nil || a.JobName != "" || a.RunID != "" {
			t.Errorf("a scoped token sees another key's job: %+v, %v", a, err)
		}
		if _, err := r.Agent(ctx, scope, "nobody"); !errors.Is(err, read.ErrNotFound) {
			t.Errorf("unknown agent: %v", err)
		}
		s, err := r.Scalers(ctx, scope)
		if err != nil || len(s.Scalers) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		sc := s.Scalers[0]
		if sc.State != "full" || sc.ActiveCount != 2 || sc.WarmCount != 1 || sc.StartingCount != 2 || sc.UsedCPUMilli != 2000 || sc.StateText != "2 of 2 agents" {
			t.Errorf("scaler %+v", sc)
		}
		if len(sc.NotProtected) != 1 || sc.NotProtected[0] != "jobs see this machine" {
			t.Errorf("what is not protected: %q", sc.NotProtected)
		}
		if len(sc.Holders) != 1 || sc.Holders[0].Agents != 1 || sc.Holders[0].Repo != readtest.Repo || sc.Holders[0].Number != 1 {
			t.Errorf("held by %+v", sc.Holders)
		}
		if s, err = r.Scalers(ctx, read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}); err != nil || len(s.Scalers[0].Holders) != 0 {
			t.Errorf("a scoped token sees who of another key holds agents: %+v, %v", s, err)
		}
	})
}
