package registration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func newService(st *store.Store) *Service {
	return New(Deps{Store: st, Events: &told{}, Env: service.Env{Now: time.Now, NewID: ci.NewID}, Log: slog.New(slog.DiscardHandler)})
}

// told is what was emitted, of transactions that committed or not.
type told struct {
	mu     sync.Mutex
	events []Event
	fail   error
}

func (o *told) EmitTx(_ *store.Tx, e Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
	return o.fail
}

func seedOrg(t *testing.T, st *store.Store) {
	t.Helper()
	if err := st.Write(t.Context(), func(tx *store.Tx) error { return tx.InsertOrg(t.Context(), "default", 1) }); err != nil {
		t.Fatal(err)
	}
}

func workflowNamed(name string, triggers ...string) lock.Workflow {
	w := lock.Workflow{Name: name, SourceFile: ".kici/workflows/" + name + ".yaml"}
	for _, kind := range triggers {
		w.On = append(w.On, lock.Trigger{Type: kind})
	}
	return w
}

func scopeAt(commit string, at int64) db.WorkflowRegistration {
	return db.WorkflowRegistration{
		OrgID: "default", RoutingKey: "generic:default:1", Repo: "demo", CommitSha: commit, DefaultBranch: "main", SyncedAt: at,
	}
}

func syncAt(t *testing.T, s *Service, scope db.WorkflowRegistration, delivery string, ws ...lock.Workflow) bool {
	t.Helper()
	var applied bool
	err := s.st.Write(t.Context(), func(tx *store.Tx) (err error) {
		applied, err = s.Sync(t.Context(), tx, scope, delivery, ws)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// names are "workflow@commit" of what a trigger type finds.
func names(t *testing.T, s *Service, kind string) []string {
	t.Helper()
	found, err := s.Triggered(t.Context(), "default", kind)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for row, w := range found {
		if w == nil || w.Name != row.Workflow {
			t.Errorf("%s: decoded %+v", row.Workflow, w)
		}
		out = append(out, row.Workflow+"@"+row.CommitSha)
	}
	slices.Sort(out)
	return out
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSyncReplacesAndPrunes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		syncAt(t, s, scopeAt("c1", 1), "d1", workflowNamed("a", "push", "generic_webhook", "push"), workflowNamed("b", "generic_webhook"), workflowNamed("none"))
		want(t, names(t, s, "push"), "a@c1")
		want(t, names(t, s, "generic_webhook"), "a@c1", "b@c1")
		syncAt(t, s, scopeAt("c2", 2), "d2", workflowNamed("a", "push"), workflowNamed("c", "generic_webhook"))
		want(t, names(t, s, "push"), "a@c2")
		want(t, names(t, s, "generic_webhook"), "c@c2")
		if commit, err := s.Synced(t.Context(), "generic:default:1", "demo"); err != nil || commit != "c2" {
			t.Error(commit, err)
		}
		if commit, err := s.Synced(t.Context(), "generic:default:1", "other"); err != nil || commit != "" {
			t.Error(commit, err)
		}
	})
}

func TestXC25OlderDeliveryDoesNotOverwrite(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		if !syncAt(t, s, scopeAt("new", 20), "d2", workflowNamed("a", "push")) {
			t.Fatal("first sync refused")
		}
		for _, at := range []int64{10, 20} {
			if syncAt(t, s, scopeAt("old", at), "d1", workflowNamed("b", "push")) {
				t.Errorf("a delivery received at %d replaced one received at 20", at)
			}
		}
		want(t, names(t, s, "push"), "a@new")
		// A newer push without workflows removes them all, and is still remembered as the newest.
		syncAt(t, s, scopeAt("empty", 30), "d3")
		if syncAt(t, s, scopeAt("old", 25), "d4", workflowNamed("b", "push")) {
			t.Error("an older delivery came back after the newest had removed everything")
		}
		want(t, names(t, s, "push"))
	})
}

func TestXC26RowsAndVersionAreOneTransaction(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		crash := errors.New("crash")
		err := st.Write(t.Context(), func(tx *store.Tx) error {
			if _, err := s.Sync(t.Context(), tx, scopeAt("c1", 1), "d1", []lock.Workflow{workflowNamed("a", "push")}); err != nil {
				return err
			}
			return crash
		})
		if !errors.Is(err, crash) {
			t.Fatal(err)
		}
		if v, err := version(t.Context(), st.Read()); err != nil || v != 0 {
			t.Errorf("version %d %v after a rollback", v, err)
		}
		want(t, names(t, s, "push"))
		syncAt(t, s, scopeAt("c1", 1), "d1", workflowNamed("a", "push"))
		if v, _ := version(t.Context(), st.Read()); v != 1 {
			t.Errorf("version %d, want 1", v)
		}
	})
}

// Nobody calls the second service: it has no subscription and learns from the version alone.
func TestXC27MissedNotificationIsSeenAtTheMatch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		one, two := newService(st), newService(st)
		want(t, names(t, two, "push"))
		syncAt(t, one, scopeAt("c1", 1), "d1", workflowNamed("a", "push"))
		want(t, names(t, two, "push"), "a@c1")
		before := two.index.Load().entries
		syncAt(t, one, scopeAt("c2", 2), "d2", workflowNamed("a", "push"))
		want(t, names(t, two, "push"), "a@c2")
		for id, e := range two.index.Load().entries {
			if before[id].workflow != e.workflow {
				t.Error("an unchanged workflow was decoded again")
			}
		}
	})
}

func TestXC28ManualRegistrationPrunesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		syncAt(t, s, scopeAt("c1", 1), "d1", workflowNamed("a", "push"), workflowNamed("b", "push"))
		after, err := s.Register(t.Context(), scopeAt("c2", 2), []lock.Workflow{workflowNamed("b", "push"), workflowNamed("c", "push")})
		if err != nil || after != 2 {
			t.Fatal(after, err)
		}
		want(t, names(t, s, "push"), "a@c1", "b@c2", "c@c2")
	})
}

func TestDisableKeepsTheRow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		syncAt(t, s, scopeAt("c1", 1), "d1", workflowNamed("a", "push"), workflowNamed("b", "push"))
		rows, err := st.Read().RegistrationsOfOrg(t.Context(), "default")
		if err != nil || len(rows) != 2 {
			t.Fatal(rows, err)
		}
		if err := s.SetDisabled(t.Context(), "default", rows[0].ID, true); err != nil {
			t.Fatal(err)
		}
		want(t, names(t, s, "push"), "b@c1")
		syncAt(t, s, scopeAt("c2", 2), "d2", workflowNamed("a", "push"), workflowNamed("b", "push"))
		want(t, names(t, s, "push"), "b@c2") // a sync keeps the switch
		if err := s.SetDisabled(t.Context(), "default", rows[0].ID, false); err != nil {
			t.Fatal(err)
		}
		want(t, names(t, s, "push"), "a@c2", "b@c2")
		if err := s.SetDisabled(t.Context(), "other", rows[0].ID, true); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v, want ErrNotFound in another organisation", err)
		}
	})
}

func TestForgetRemovesASourcesRegistrations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		syncAt(t, s, scopeAt("c1", 1), "d1", workflowNamed("a", "push"))
		other := scopeAt("c1", 1)
		other.RoutingKey = "generic:default:2"
		syncAt(t, s, other, "d2", workflowNamed("b", "push"))
		err := st.Write(t.Context(), func(tx *store.Tx) error { return s.Forget(t.Context(), tx, "default", "generic:default:1") })
		if err != nil {
			t.Fatal(err)
		}
		want(t, names(t, s, "push"), "b@c1")
	})
}

func TestUnreadableEntryDoesNotHideTheOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		syncAt(t, s, scopeAt("c1", 1), "d1", workflowNamed("a", "push"))
		err := st.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.UpsertRegistration(t.Context(), db.UpsertRegistrationParams{
				ID: "x", OrgID: "default", RoutingKey: "k", Repo: "r", Workflow: "broken", LockEntry: "{", TriggerTypes: ",push,",
			})
			return errors.Join(err, bump(t.Context(), tx, "default"))
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, names(t, s, "push"), "a@c1")
	})
}

func TestIndexIsSafeForConcurrentUse(t *testing.T) {
	st := storetest.SQLite(t)
	seedOrg(t, st)
	s := newService(st)
	done := make(chan error)
	for i := range 4 {
		go func() {
			var err error
			for j := range 10 {
				if i == 0 {
					_, e := s.Register(context.Background(), scopeAt(fmt.Sprint("c", j), int64(j)), []lock.Workflow{workflowNamed("a", "push")})
					err = errors.Join(err, e)
				} else {
					_, e := s.Triggered(context.Background(), "default", "push")
					err = errors.Join(err, e)
				}
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(context.Background())
}
