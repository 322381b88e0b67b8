package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow"
)

const dispatchable = `name: deploy
on:
  workflow_dispatch:
    inputs:
      env: {type: choice, options: [dev, prod], required: true}
      count: {type: number, default: 2}
jobs:
  a: {runs-on: linux, steps: [{run: echo}]}
`

func TestStart(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st) // not running: a start needs no pipeline
		r, first := newRepo(t, map[string]string{".kici/workflows/deploy.yaml": dispatchable, ".kici/workflows/ci.yaml": yaml("ci", "push")})
		r.git("tag", "v1")
		second := r.commit("second", map[string]string{"x": "1"})
		w.source("demo", r.dir)
		req := StartRequest{OrgID: "default", Source: "demo", Workflow: "deploy", Inputs: map[string]any{"env": "prod"}, By: "ann"}
		id, err := w.in.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		run, err := st.Read().ReadRun(t.Context(), id, "default")
		if err != nil || run.Sha != second || run.Branch != "main" || run.Actor != "ann" || run.TriggerEvent != "dispatch" || run.Title != "second" {
			t.Errorf("%+v %v", run, err)
		}
		extra, err := st.Read().ReadRunExtra(t.Context(), id)
		if err != nil || extra.Inputs != `{"count":2,"env":"prod"}` {
			t.Errorf("%+v %v", extra, err)
		}
		rows, err := st.Read().ReadDelivery(t.Context(), "default", run.DeliveryID)
		if err != nil || rows[0].Kind != "manual" || rows[0].Status != statusProcessed || rows[0].RunID.String != id || rows[0].Matched != 1 || !rows[0].FinishedAt.Valid {
			t.Errorf("%+v %v", rows, err)
		}
		req.Ref, req.Workflow = "v1", "deploy.yaml"
		id, err = w.in.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if run, err := st.Read().ReadRun(t.Context(), id, "default"); err != nil || run.Sha != first || run.Ref != "refs/tags/v1" {
			t.Errorf("%+v %v", run, err)
		}
		req.Ref = first[:8]
		if _, err := w.in.Start(t.Context(), req); err != nil {
			t.Errorf("by commit: %v", err)
		}
	})
}

func TestStartRefusals(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	r, _ := newRepo(t, map[string]string{".kici/workflows/deploy.yaml": dispatchable, ".kici/workflows/ci.yaml": yaml("ci", "push")})
	r.git("checkout", "-q", "-b", "none")
	r.commit("none", map[string]string{".kici/workflows/deploy.yaml": "", ".kici/workflows/ci.yaml": ""})
	r.git("checkout", "-q", "-b", "broken", "main")
	r.commit("broken", map[string]string{".kici/workflows/deploy.yaml": "jobs: 7"})
	w.source("demo", r.dir)
	w.generic("hooks", `{}`)
	good := StartRequest{OrgID: "default", Source: "demo", Workflow: "deploy", Inputs: map[string]any{"env": "prod"}}
	for name, tc := range map[string]struct {
		change func(*StartRequest)
		is     error
		says   []string
	}{
		"unknown source":       {func(s *StartRequest) { s.Source = "nothing" }, ErrNotFound, nil},
		"another organisation": {func(s *StartRequest) { s.OrgID = "other" }, ErrNotFound, nil},
		"no repository":        {func(s *StartRequest) { s.Source = "hooks" }, ErrInvalid, []string{"no repository"}},
		"unknown workflow":     {func(s *StartRequest) { s.Workflow = "deplo" }, ErrInvalid, []string{"deplo", "ci, deploy"}},
		"no trigger":           {func(s *StartRequest) { s.Workflow = "ci" }, ErrInvalid, []string{"workflow_dispatch", "these have one: deploy"}},
		"unknown ref":          {func(s *StartRequest) { s.Ref = "nothing" }, ErrInvalid, []string{"nothing"}},
		"hostile ref":          {func(s *StartRequest) { s.Ref = "--upload-pack=x" }, ErrInvalid, []string{"upload-pack"}},
		"missing workflows":    {func(s *StartRequest) { s.Ref = "none" }, ErrInvalid, []string{"no workflows"}},
		"corrupt workflows":    {func(s *StartRequest) { s.Ref = "broken" }, ErrInvalid, []string{".kici/workflows/deploy.yaml:"}},
		"missing input":        {func(s *StartRequest) { s.Inputs = nil }, ErrInvalid, []string{"env"}},
		"wrong input":          {func(s *StartRequest) { s.Inputs = map[string]any{"env": "test", "x": 1} }, ErrInvalid, []string{"env", "x"}},
	} {
		req := good
		tc.change(&req)
		id, err := w.in.Start(t.Context(), req)
		if !errors.Is(err, tc.is) || id != "" {
			t.Errorf("%s: %q %v, want %v", name, id, err, tc.is)
			continue
		}
		for _, text := range tc.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", name, err, text)
			}
		}
	}
	if err := w.in.Enable(t.Context(), "default", "demo", false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.in.Start(t.Context(), good); !errors.Is(err, ErrDisabled) {
		t.Errorf("disabled: %v", err)
	}
	if n := len(w.runs()); n != 0 {
		t.Errorf("%d runs", n)
	}
	if err := w.in.Enable(t.Context(), "default", "demo", true); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.in.Start(t.Context(), good); !errors.Is(err, source.ErrUnreachable) {
		t.Errorf("unreachable: %v", err)
	}
}

// Two equal requests at once, and a repeat: one run (PIPE-27).
func TestStartIsIdempotent(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, _ := newRepo(t, map[string]string{".kici/workflows/deploy.yaml": dispatchable})
		w.source("demo", r.dir)
		req := StartRequest{OrgID: "default", Source: "demo", Workflow: "deploy", Inputs: map[string]any{"env": "prod"}, RequestID: "once"}
		ids := make([]string, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				var err error
				if ids[i], err = w.in.Start(context.Background(), req); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id == "" || id != ids[0] {
				t.Errorf("ids %v", ids)
			}
		}
		if n := len(w.runs()); n != 1 {
			t.Errorf("%d runs", n)
		}
		req.RequestID = ""
		if id, err := w.in.Start(t.Context(), req); err != nil || id == ids[0] {
			t.Errorf("without a key: %s %v", id, err)
		}
	})
}

func TestTrigger(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t)).run()
	r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "{push: {paths: [never-touched/**, .kici/**]}}")})
	r.git("tag", "v1")
	r.git("update-ref", "refs/heads/$(x)", sha)
	w.source("demo", r.dir)
	for ref, want := range map[string]string{"": "refs/heads/main", "main": "refs/heads/main", "refs/tags/v1": "refs/tags/v1", "$(x)": "refs/heads/$(x)"} {
		id, err := w.in.Trigger(t.Context(), TriggerRequest{OrgID: "default", Source: "demo", Ref: ref, By: "ann"})
		if err != nil {
			t.Errorf("%q: %v", ref, err)
			continue
		}
		if d := w.delivery(id); d.Ref != want || d.Sha != sha || d.Status != statusProcessed {
			t.Errorf("%q: %+v", ref, d)
		}
	}
	for ref, want := range map[string]error{"nothing": ErrInvalid, sha: ErrInvalid, "../x": ErrInvalid} {
		if _, err := w.in.Trigger(t.Context(), TriggerRequest{OrgID: "default", Source: "demo", Ref: ref}); !errors.Is(err, want) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if run := w.runs()[0]; run.Actor != "ann" {
		t.Errorf("%+v", run)
	}
}

func TestSources(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, sha := newRepo(t, map[string]string{"x": "1"})
		added, err := w.in.AddLocal(t.Context(), LocalSource{OrgID: "default", Name: "shop", Path: r.dir + "/"})
		if err != nil || len(added.Secret) != 64 || added.URL != "http://kici.test/webhook/default/generic/shop" || added.Source.Repo != "repo" ||
			!strings.HasPrefix(added.Source.RoutingKey, "generic:default:") {
			t.Fatalf("%+v %v", added, err)
		}
		if strings.Contains(added.Source.Config, added.Secret) {
			t.Error("the secret is in the row")
		}
		if _, err := w.in.AddLocal(t.Context(), LocalSource{OrgID: "default", Name: "shop", Path: "/x"}); !errors.Is(err, ErrExists) {
			t.Errorf("same name: %v", err)
		}
		for _, ref := range []string{"shop", added.Source.ID, added.Source.RoutingKey} {
			if got, err := w.in.Get(t.Context(), "default", ref); err != nil || got.ID != added.Source.ID {
				t.Errorf("%s: %+v %v", ref, got, err)
			}
		}
		if _, err := w.in.Get(t.Context(), "other", added.Source.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("another organisation: %v", err)
		}
		found, err := w.in.Check(t.Context(), "default", "shop")
		if err != nil || found.DefaultBranch != "main" || found.Commit.SHA != sha {
			t.Errorf("%+v %v", found, err)
		}
		clone, err := w.in.CloneFor(t.Context(), "default", added.Source.RoutingKey)
		if err != nil || clone.URL != "file://"+r.dir {
			t.Errorf("%+v %v", clone, err)
		}
		if _, err := w.in.CloneFor(t.Context(), "other", added.Source.RoutingKey); !errors.Is(err, ErrNotFound) {
			t.Errorf("clone for another organisation: %v", err)
		}
		if s, err := w.in.RevealSecret(t.Context(), "default", "shop"); err != nil || s != added.Secret {
			t.Errorf("%q %v", s, err)
		}
		list, err := w.in.List(t.Context(), "default")
		if err != nil || len(list) != 1 {
			t.Errorf("%+v %v", list, err)
		}
		options, _ := json.Marshal(map[string]string{"path": r.dir, "defaultBranch": "trunk"})
		if err := w.in.Update(t.Context(), list[0], "acme/shop", options); err != nil {
			t.Fatal(err)
		}
		if err := w.in.Update(t.Context(), list[0], "acme/shop", options); !errors.Is(err, ErrTryAgain) {
			t.Errorf("update of what has changed: %v", err)
		}
		if got, _ := w.in.Get(t.Context(), "default", "shop"); got.Repo != "acme/shop" {
			t.Errorf("%+v", got)
		}
		if err := w.in.Delete(t.Context(), "default", "shop"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.in.Get(t.Context(), "default", "shop"); !errors.Is(err, ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
		if err := w.in.Delete(t.Context(), "default", "shop"); !errors.Is(err, ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if len(w.secrets.values) != 0 {
			t.Error("its secret stays")
		}
		if _, err := w.in.CloneFor(t.Context(), "default", added.Source.RoutingKey); err != nil {
			t.Errorf("its running jobs cannot clone: %v", err)
		}
		if _, err := w.in.AddLocal(t.Context(), LocalSource{OrgID: "default", Name: "shop", Path: r.dir}); err != nil {
			t.Errorf("the name is not free again: %v", err)
		}
	})
}

func TestSourceMistakesAreAllReported(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	_, err := w.in.AddLocal(t.Context(), LocalSource{OrgID: "default", Name: "No Slug", Path: "relative", Repo: "a b", Secret: "short"})
	var req *RequestError
	if !errors.As(err, &req) || !errors.Is(err, ErrInvalid) || len(req.Details) != 4 {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"No Slug", "relative", "a b", "16 characters"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	for options, says := range map[string]string{
		`{"verificationMethod":"magic","rateLimitRpm":-1}`: "rateLimitRpm", `{"unknown":1}`: "unknown", `7`: "options",
	} {
		if _, err := w.in.AddGeneric(t.Context(), GenericSource{OrgID: "default", Name: "x", Options: []byte(options)}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", options, err)
		}
	}
	if _, err := w.in.AddGeneric(t.Context(), GenericSource{OrgID: "default", Name: "x", RunsSource: "nothing"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"", "-a", "a-", "a/b", "..", "A", strings.Repeat("a", 64), "a\n"} {
		if _, err := w.in.AddLocal(t.Context(), LocalSource{OrgID: "default", Name: name, Path: "/x"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.source("gone", "/does/not/exist")
	if _, err := w.in.Check(t.Context(), "default", "gone"); !errors.Is(err, source.ErrUnreachable) || !strings.Contains(err.Error(), "/does/not/exist") ||
		strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("%v", err)
	}
	w.generic("hooks", `{}`)
	if _, err := w.in.Check(t.Context(), "default", "hooks"); err != nil {
		t.Errorf("%v", err)
	}
}

func TestLockCache(t *testing.T) {
	now := time.Now()
	c := newLockCache(func() time.Time { return now }, CacheBounds{Entries: 300, Bytes: 8 << 20, For: time.Minute})
	cacheEntries, cacheBytes, cacheFor := c.bounds.Entries, c.bounds.Bytes, c.bounds.For
	defer c.close()
	f := &sourcetest.Fake{}
	sha := f.Commit("", "first", map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			r, err := c.get(context.Background(), "k", sha, f)
			if err != nil || r.result != workflow.OK || r.commit.Title != "first" {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
	wg.Wait()
	if n := f.Calls("Files"); n != 1 {
		t.Errorf("%d fetches, want one for sixteen callers", n)
	}
	if _, err := c.get(t.Context(), "other", sha, f); err != nil || f.Calls("Files") != 2 {
		t.Errorf("another repository shares the entry: %v", err)
	}
	now = now.Add(cacheFor + time.Second)
	if _, err := c.get(t.Context(), "k", sha, f); err != nil || f.Calls("Files") != 3 {
		t.Errorf("it never expires: %v", err)
	}
	f.Fail(source.ErrUnreachable)
	other := f.Commit("", "second", nil)
	if _, err := c.get(t.Context(), "k", other, f); !errors.Is(err, source.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	f.Fail(nil)
	if r, err := c.get(t.Context(), "k", other, f); err != nil || r.result != workflow.Missing {
		t.Errorf("an error was kept: %+v %v", r, err)
	}
	for i := range cacheEntries + 50 {
		c.store(string(rune('a'+i%26))+strings.Repeat("x", i), &resolved{size: 1})
	}
	if len(c.byKey) > cacheEntries || c.order.Len() != len(c.byKey) {
		t.Errorf("%d entries", len(c.byKey))
	}
	for i := range 20 {
		c.store("big"+strings.Repeat("y", i), &resolved{size: cacheBytes / 5})
	}
	c.store("too big", &resolved{size: cacheBytes})
	if c.size > cacheBytes || c.lookup("too big") != nil || c.lookup("big"+strings.Repeat("y", 19)) == nil {
		t.Errorf("%d bytes", c.size)
	}
}

func TestResolve(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
	none := r.commit("none", map[string]string{".kici/workflows/ci.yaml": ""})
	w.source("demo", r.dir)
	row, err := w.in.Get(t.Context(), "default", "demo")
	if err != nil {
		t.Fatal(err)
	}
	if file, err := w.in.Resolve(t.Context(), "default", row.RoutingKey, sha); err != nil || file.Workflows[0].Name != "ci" {
		t.Errorf("%+v %v", file, err)
	}
	if _, err := w.in.Resolve(t.Context(), "default", row.RoutingKey, none); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := w.in.Resolve(t.Context(), "default", row.RoutingKey, strings.Repeat("1", 40)); !errors.Is(err, ErrNoCommit) {
		t.Errorf("%v", err)
	}
	if _, err := w.in.Resolve(t.Context(), "other", row.RoutingKey, sha); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}
