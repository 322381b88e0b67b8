package registration

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// cronAt is a workflow with schedules "expression|zone".
func cronAt(name string, schedules ...string) lock.Workflow {
	w := workflowNamed(name, "push")
	for _, text := range schedules {
		expression, zone, _ := strings.Cut(text, "|")
		w.On = append(w.On, lock.Trigger{Type: "schedule", Cron: expression, Timezone: zone})
	}
	return w
}

// schedules are the rows of a workflow by "expression|zone".
func schedules(t *testing.T, st *store.Store, name string) map[string]db.Schedule {
	t.Helper()
	regs, err := st.Read().RegistrationsOfOrg(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]db.Schedule{}
	for _, r := range regs {
		if r.Workflow != name {
			continue
		}
		rows, err := st.Read().SchedulesOfRegistration(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			out[row.Expression+"|"+row.Timezone] = row
		}
	}
	return out
}

func registered(t *testing.T, st *store.Store, name string) db.WorkflowRegistration {
	t.Helper()
	regs, err := st.Read().RegistrationsOfOrg(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range regs {
		if r.Workflow == name {
			return r
		}
	}
	t.Fatalf("no registration %s", name)
	return db.WorkflowRegistration{}
}

// fired pretends that a schedule has fired.
func fired(t *testing.T, st *store.Store, row db.Schedule, at int64) {
	t.Helper()
	err := st.Write(t.Context(), func(tx *store.Tx) error {
		_, err := tx.ClaimSchedule(t.Context(), db.ClaimScheduleParams{
			Instant: at, NextAt: sql.NullInt64{Int64: at + 1, Valid: true}, RegistrationID: row.RegistrationID, Expression: row.Expression, Timezone: row.Timezone,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestXC50NewSchedulesBeginNow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		before := time.Now().UnixMilli()
		syncAt(t, s, scopeAt("c1", 1), "d1", cronAt("a", "0 4 * * *", "0 4 * * *|Europe/Berlin", "0 4 * * *|UTC"), workflowNamed("b", "push"))
		rows := schedules(t, st, "a")
		if len(rows) != 2 { // no zone is UTC
			t.Fatalf("%+v", rows)
		}
		for key, r := range rows {
			if r.LastFiredAt < before-time.Minute.Milliseconds() || r.NextAt.Int64 <= r.LastFiredAt || r.NextAt.Int64 > before+25*time.Hour.Milliseconds() || r.Error != "" || r.LastEventID != "" {
				t.Errorf("%s: %+v", key, r)
			}
		}
		at := rows["0 4 * * *|UTC"].LastFiredAt + 1000
		fired(t, st, rows["0 4 * * *|UTC"], at)
		// The same schedule of a later commit keeps its history; another zone is another schedule; a removed one is forgotten.
		syncAt(t, s, scopeAt("c2", 2), "d2", cronAt("a", "0 4 * * *", "0 4 * * *|Asia/Tokyo"))
		rows = schedules(t, st, "a")
		if len(rows) != 2 || rows["0 4 * * *|UTC"].LastFiredAt != at || rows["0 4 * * *|Asia/Tokyo"].LastFiredAt < before-time.Minute.Milliseconds() {
			t.Errorf("%+v", rows)
		}
		syncAt(t, s, scopeAt("c3", 3), "d3", workflowNamed("a", "push"))
		if rows = schedules(t, st, "a"); len(rows) != 0 {
			t.Errorf("%+v", rows)
		}
		syncAt(t, s, scopeAt("c4", 4), "d4", cronAt("a", "0 4 * * *"))
		if rows = schedules(t, st, "a"); rows["0 4 * * *|UTC"].LastEventID != "" || len(rows) != 1 {
			t.Errorf("%+v", rows)
		}
		id := registered(t, st, "a").ID
		if err := s.Delete(t.Context(), "default", id); err != nil {
			t.Fatal(err)
		}
		if left, err := st.Read().SchedulesOfRegistration(t.Context(), id); err != nil || len(left) != 0 {
			t.Errorf("%+v %v", left, err)
		}
		if err := s.Delete(t.Context(), "default", id); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestWhatADisabledRegistrationMissesIsNotMadeUp(t *testing.T) {
	storetest.SQLiteDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		st := storetest.SQLite(t)
		seedOrg(t, st)
		s := newService(st)
		syncAt(t, s, scopeAt("c1", 1), "d1", cronAt("a", "0 * * * *"))
		id := registered(t, st, "a").ID
		if err := s.SetDisabled(t.Context(), "default", id, true); err != nil {
			t.Fatal(err)
		}
		if r := schedules(t, st, "a")["0 * * * *|UTC"]; r.NextAt.Valid {
			t.Errorf("disabled and due: %+v", r)
		}
		// A new schedule of a disabled registration waits, too.
		syncAt(t, s, scopeAt("c2", 2), "d2", cronAt("a", "0 * * * *", "5 * * * *"))
		if r := schedules(t, st, "a")["5 * * * *|UTC"]; r.NextAt.Valid || r.Error != "" {
			t.Errorf("disabled and due: %+v", r)
		}
		time.Sleep(10 * time.Hour)
		if err := s.SetDisabled(t.Context(), "default", id, false); err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixMilli()
		for key, r := range schedules(t, st, "a") {
			if r.LastFiredAt != now || r.NextAt.Int64 <= now || r.NextAt.Int64 > now+time.Hour.Milliseconds() {
				t.Errorf("%s: %+v at %d", key, r, now)
			}
		}
	})
}

func TestAnInvalidExpressionIsStoredWithItsReason(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		syncAt(t, s, scopeAt("c1", 1), "d1", cronAt("a", "0 4 * *", "0 5 * * *|Mars/Base", "0 6 * * *"))
		rows := schedules(t, st, "a")
		if r := rows["0 4 * *|UTC"]; r.NextAt.Valid || !strings.Contains(r.Error, "fields") {
			t.Errorf("%+v", r)
		}
		if r := rows["0 5 * * *|Mars/Base"]; r.NextAt.Valid || !strings.Contains(r.Error, "zone") {
			t.Errorf("%+v", r)
		}
		if r := rows["0 6 * * *|UTC"]; !r.NextAt.Valid || r.Error != "" {
			t.Errorf("%+v", r)
		}
	})
}

// Registrations that an older version wrote get their schedules from the leader.
func TestSeedMissing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		for i := range 5 {
			syncAt(t, s, db.WorkflowRegistration{OrgID: "default", RoutingKey: fmt.Sprint("k", i), Repo: "r", CommitSha: "c", SyncedAt: 1}, "d", cronAt(fmt.Sprint("w", i), "0 4 * * *"))
		}
		err := st.Write(t.Context(), func(tx *store.Tx) error {
			for i := range 4 {
				reg := registeredIn(t, tx, fmt.Sprint("w", i))
				if _, err := tx.DropSchedule(t.Context(), reg.ID, "0 4 * * *", "UTC"); err != nil {
					return err
				}
			}
			for after, looks := "", 0; ; looks++ {
				var err error
				if after, err = s.SeedMissing(t.Context(), tx, after, 3); err != nil || after == "" {
					if looks != 2 {
						t.Errorf("%d looks", looks)
					}
					return err
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if rows := schedules(t, st, fmt.Sprint("w", i)); len(rows) != 1 {
				t.Errorf("w%d: %+v", i, rows)
			}
		}
	})
}

func registeredIn(t *testing.T, tx *store.Tx, name string) db.WorkflowRegistration {
	t.Helper()
	rows, err := tx.RegistrationsOfOrg(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Workflow == name {
			return r
		}
	}
	t.Fatal("no registration " + name)
	return db.WorkflowRegistration{}
}

func TestChangesAreTold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		events := s.events.(*told)
		syncAt(t, s, scopeAt("c1", 1), "d1", workflowNamed("a", "push"), workflowNamed("none"), workflowNamed("b", "push"))
		if len(events.events) != 1 {
			t.Fatalf("%+v", events.events)
		}
		e := events.events[0]
		var payload updated
		if err := json.Unmarshal(e.Payload, &payload); err != nil || e.Name != EventUpdated || e.Repo != "demo" || e.RoutingKey != "generic:default:1" || e.OrgID != "default" ||
			payload.Repo != "demo" || payload.WorkflowCount != 2 || strings.Join(payload.Workflows, " ") != "a b" {
			t.Errorf("%+v %s %v", e, e.Payload, err)
		}
		// The same commit again changes nothing: no new version, no event.
		before, _ := version(t.Context(), st.Read())
		syncAt(t, s, scopeAt("c1", 2), "d2", workflowNamed("a", "push"), workflowNamed("none"), workflowNamed("b", "push"))
		if after, _ := version(t.Context(), st.Read()); after != before || len(events.events) != 1 {
			t.Errorf("version %d → %d, %d events", before, after, len(events.events))
		}
		if _, err := s.Register(t.Context(), scopeAt("c2", 3), []lock.Workflow{workflowNamed("b", "push")}); err != nil || len(events.events) != 2 {
			t.Errorf("%v, %d events", err, len(events.events))
		}
		if _, err := s.current(t.Context()); err != nil || s.Version() != before+1 {
			t.Errorf("version %d, want %d", s.Version(), before+1)
		}
	})
}

func TestByIDAndGlobals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seedOrg(t, st)
		s := newService(st)
		w := workflowNamed("a", "push")
		w.On[0].Repos = []string{"acme/*"}
		syncAt(t, s, scopeAt("c1", 1), "d1", w, workflowNamed("b", "push"))
		globals := func() (out []string) {
			found, err := s.Globals(t.Context(), "default", "push")
			if err != nil {
				t.Fatal(err)
			}
			for row := range found {
				out = append(out, row.Workflow)
			}
			return out
		}
		want(t, globals(), "a")
		id := registered(t, st, "a").ID
		if row, w, ok, err := s.ByID(t.Context(), id); err != nil || !ok || w.Name != "a" || !row.IsGlobal {
			t.Errorf("%+v %v %v %v", row, w, ok, err)
		}
		if err := s.SetDisabled(t.Context(), "default", id, true); err != nil {
			t.Fatal(err)
		}
		want(t, globals())
		if row, _, ok, err := s.ByID(t.Context(), id); err != nil || !ok || !row.Disabled {
			t.Errorf("%+v %v %v", row, ok, err)
		}
		if _, _, ok, err := s.ByID(t.Context(), "nothing"); err != nil || ok {
			t.Error(ok, err)
		}
	})
}

// A node that nobody asks reloads by itself.
func TestRunKeepsTheIndexCurrent(t *testing.T) {
	storetest.SQLiteDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		st := storetest.SQLite(t)
		seedOrg(t, st)
		one, two := newService(st), newService(st)
		stop := make(chan struct{})
		ctx, cancel := contextOf(t)
		go func() { defer close(stop); _ = two.Run(ctx) }()
		syncAt(t, one, scopeAt("c1", 1), "d1", workflowNamed("a", "push"))
		time.Sleep(time.Second)
		if two.Version() != 1 {
			t.Errorf("version %d", two.Version())
		}
		cancel()
		<-stop
	})
}
