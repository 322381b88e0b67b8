package ingress

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/local"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestDecideGlobals(t *testing.T) {
	on := Globals{Enabled: true}
	push := ci.Event{Type: "push", Branch: "main", Repo: "acme/shop"}
	fork := push
	fork.Fork = true
	rules := func(patterns ...string) []RepoRule {
		out := []RepoRule{}
		for _, p := range patterns {
			out = append(out, RepoRule{Pattern: p})
		}
		return out
	}
	for _, c := range []struct {
		name     string
		settings Globals
		event    ci.Event
		repos    []string
		matched  bool
		why      string
	}{
		{"matches", on, push, []string{"acme/*"}, true, ""},
		{"another repository", on, push, []string{"other/*"}, false, ""},
		{"excluded", on, push, []string{"acme/*", "!acme/shop"}, false, ""},
		{"XC-30: nothing known of the settings", Globals{}, push, []string{"acme/*"}, false, "switched off"},
		{"switched off", Globals{Allow: rules("**")}, push, []string{"acme/*"}, false, "switched off"},
		{"a fork", on, fork, []string{"acme/*"}, false, "fork"},
		{"denied", Globals{Enabled: true, Deny: rules("acme/*")}, push, []string{"acme/*"}, false, "acme/shop is in the"},
		{"an invalid pattern denies", Globals{Enabled: true, Deny: rules("[")}, push, []string{"acme/*"}, false, "acme/shop is in the"},
		{"not denied", Globals{Enabled: true, Deny: rules("acme/site")}, push, []string{"acme/*"}, true, ""},
		{"denied for another source", Globals{Enabled: true, Deny: []RepoRule{{RoutingKey: "k9", Pattern: "**"}}}, push, []string{"acme/*"}, true, ""},
		{"denied for this source", Globals{Enabled: true, Deny: []RepoRule{{RoutingKey: "k1", Pattern: "**"}}}, push, []string{"acme/*"}, false, "acme/shop is in the"},
		{"allowed author", Globals{Enabled: true, Allow: rules("acme/ci")}, push, []string{"acme/*"}, true, ""},
		{"author not in the list", Globals{Enabled: true, Allow: rules("acme/other")}, push, []string{"acme/*"}, false, "acme/ci is not in"},
		{"an empty list allows nobody", Globals{Enabled: true, Allow: rules()}, push, []string{"acme/*"}, false, "acme/ci is not in"},
		{"an invalid pattern does not allow", Globals{Enabled: true, Allow: rules("[")}, push, []string{"acme/*"}, false, "acme/ci is not in"},
		{"allowed under another key", Globals{Enabled: true, Allow: []RepoRule{{RoutingKey: "k9", Pattern: "**"}}}, push, []string{"acme/*"}, false, "acme/ci is not in"},
	} {
		g := global{
			reg:      db.WorkflowRegistration{RoutingKey: "k2", Repo: "acme/ci", Workflow: "all"},
			workflow: &lock.Workflow{Name: "all", On: []lock.Trigger{{Type: "push"}, {Type: "push", Repos: c.repos}}},
		}
		got, found := globalFacts{settings: c.settings, event: c.event, routingKey: "k1"}.decide(g)
		if got.Matched != c.matched || found.Matched != c.matched || !strings.Contains(got.Reason, c.why) || (c.why == "") != (got.Reason == "") || !got.Global || got.Repo != "acme/ci" {
			t.Errorf("%s: %+v %+v", c.name, got, found)
		}
		if c.why == "" && len(got.Checks) == 0 {
			t.Errorf("%s: no checks", c.name)
		}
	}
}

// globalWorld has a repository whose global workflow follows everything, registered, and another one.
func globalWorld(t *testing.T, st *store.Store, settings func() Globals, change ...func(*Deps)) (w *world, author, other *repo, secret string) {
	t.Helper()
	change = append(change, func(d *Deps) { d.Globals = func(string) Globals { return settings() } })
	w = newWorld(t, st, change...)
	author, _ = newRepo(t, map[string]string{
		".kici/workflows/all.yaml":   yaml("all", "{push: {branches: [main], repos: ['*']}}"),
		".kici/workflows/paths.yaml": yaml("paths", "{push: {branches: ['**'], paths: ['docs/**'], repos: ['other']}}"),
		".kici/workflows/own.yaml":   yaml("own", "push"),
	})
	w.source("author", author.dir)
	other, _ = newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
	secret = w.source("other", other.dir)
	if _, err := w.in.Refresh(t.Context(), "default", "author", "ann"); err != nil {
		t.Fatal(err)
	}
	w.run()
	return w, author, other, secret
}

func (w *world) decisions(delivery string) string {
	w.t.Helper()
	extra, err := w.st.Read().ReadDeliveryExtra(context.Background(), delivery)
	if err != nil {
		w.t.Fatal(err)
	}
	return extra.Decisions
}

func TestGlobalWorkflowsFollowOtherRepositories(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		var on atomic.Bool
		w, author, other, secret := globalWorld(t, st, func() Globals { return Globals{Enabled: on.Load()} })
		registered := w.registration("all").CommitSha
		author.commit("later", map[string]string{"README": "x"})

		// XC-30: off, and the delivery says so.
		first := other.git("rev-parse", "HEAD")
		d := w.delivery(w.push("other", secret, pushOf("refs/heads/main", "", first), "d1").DeliveryID)
		if w.workflows() != "ci" || d.Matched != 1 || !strings.Contains(w.decisions(d.ID), "switched off") || !strings.Contains(w.decisions(d.ID), `"global":true`) {
			t.Fatalf("%s %+v %s", w.workflows(), d, w.decisions(d.ID))
		}
		on.Store(true)
		second := other.commit("docs", map[string]string{"docs/a.md": "x"})
		d = w.delivery(w.push("other", secret, pushOf("refs/heads/main", first, second), "d2").DeliveryID)
		if d.Status != statusProcessed || d.Matched != 3 {
			t.Fatalf("%+v %s", d, w.decisions(d.ID))
		}
		seen := map[string]db.ReadRunsRow{}
		for _, r := range w.runs() {
			seen[r.Repo+"#"+r.Workflow] = r
		}
		all := seen["author#all"]
		if all.Sha != registered || all.DeliveryID != d.ID || all.TriggerEvent != "push" || all.Branch != "main" || all.Actor != "ann" {
			t.Errorf("%+v", all)
		}
		if seen["author#paths"].ID == "" || seen["other#ci"].ID == "" || seen["author#own"].ID != "" {
			t.Errorf("%v", seen)
		}
		// The same delivery again starts nothing twice.
		if w.push("other", secret, pushOf("refs/heads/main", first, second), "d2"); len(w.runs()) != 4 {
			t.Errorf("%d runs", len(w.runs()))
		}
	})
}

// The event's own repository is matched the ordinary way, and only once.
func TestGlobalWorkflowsOfTheEventsOwnRepository(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w, author, _, _ := globalWorld(t, st, func() Globals { return Globals{Enabled: true} })
		e, err := w.in.Get(t.Context(), "default", "author")
		if err != nil {
			t.Fatal(err)
		}
		secret, err := w.in.RevealSecret(t.Context(), "default", e.ID)
		if err != nil {
			t.Fatal(err)
		}
		sha := author.commit("more", map[string]string{"docs/b.md": "x"})
		d := w.delivery(w.push("author", secret, pushOf("refs/heads/main", "", sha), "d1").DeliveryID)
		if d.Matched != 2 || strings.Contains(w.decisions(d.ID), `"global":true`) {
			t.Errorf("%+v %s", d, w.decisions(d.ID))
		}
		for _, r := range w.runs() {
			if r.Sha != sha {
				t.Errorf("%+v", r)
			}
		}
	})
}

// LOCK-4: a commit without workflows still starts those of others.
func TestGlobalWorkflowsOfACommitWithoutWorkflows(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w, _, other, secret := globalWorld(t, st, func() Globals { return Globals{Enabled: true} })
		sha := other.commit("none", map[string]string{".kici/workflows/ci.yaml": "", "README": "x"})
		d := w.delivery(w.push("other", secret, pushOf("refs/heads/main", "", sha), "d1").DeliveryID)
		if d.Status != statusProcessed || d.Matched != 1 || w.workflows() != "all" {
			t.Errorf("%+v %s", d, w.workflows())
		}
		sha = other.commit("dev", map[string]string{"README": "y"})
		d = w.delivery(w.push("other", secret, pushOf("refs/heads/dev", "", sha), "d2").DeliveryID)
		if d.Status != statusMissing || d.Matched != 0 {
			t.Errorf("%+v %s", d, w.decisions(d.ID))
		}
	})
}

// away is a source whose repository cannot be reached for some time.
type away struct {
	source.Source
	gone *atomic.Bool
}

func (a away) Resolve(ctx context.Context, ref string) (source.Commit, error) {
	if a.gone.Load() {
		return source.Commit{}, fmt.Errorf("%w: nobody answers", source.ErrUnreachable)
	}
	return a.Source.Resolve(ctx, ref)
}

// takeAway makes the local source of that name one that goes when gone says so.
func takeAway(d *Deps, name string, gone *atomic.Bool) {
	made := d.Factories[local.Kind]
	d.Factories[local.Kind] = func(c source.Config) (source.Source, error) {
		s, err := made(c)
		if err == nil && c.Name == name {
			s = away{s, gone}
		}
		return s, err
	}
}

// A repository of a global workflow that is away does not keep the event's own workflows from running.
func TestGlobalWorkflowWhoseRepositoryIsAway(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		var gone atomic.Bool
		w, _, other, secret := globalWorld(t, st, func() Globals { return Globals{Enabled: true} }, func(d *Deps) { takeAway(d, "author", &gone) })
		gone.Store(true)
		d := w.delivery(w.push("other", secret, pushOf("refs/heads/main", "", other.git("rev-parse", "HEAD")), "d1").DeliveryID)
		if d.Status != statusProcessed || d.Matched != 1 || d.Attempts != patientAttempts+1 || w.workflows() != "ci" || !strings.Contains(w.decisions(d.ID), "could not be started") {
			t.Errorf("%+v %s %s", d, w.workflows(), w.decisions(d.ID))
		}
	})
}

func TestRepoRuleNeverPanics(t *testing.T) {
	for _, p := range []string{"", "!", "[", "**", "a/b"} {
		_ = RepoRule{Pattern: p}.matches("k", "a/b", false)
	}
	if !errors.Is(notNow("x"), ErrConflict) {
		t.Error("a conflict is none")
	}
}
