package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store with registrations, and the services that fire their schedules.
type world struct {
	t  testing.TB
	st *store.Store
}

func newWorld(t testing.TB, st *store.Store) *world {
	t.Helper()
	w := &world{t, st}
	w.write(func(tx *store.Tx) error {
		return errors.Join(tx.InsertOrg(context.Background(), "default", 1), tx.SeedLeaderTerm(context.Background()))
	})
	return w
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, st *store.Store) { f(t, newWorld(t, st)) })
}

func (w *world) write(f func(tx *store.Tx) error) {
	w.t.Helper()
	if err := w.st.Write(context.Background(), f); err != nil {
		w.t.Fatal(err)
	}
}

// term takes leadership over.
func (w *world) term() (term int64) {
	w.t.Helper()
	w.write(func(tx *store.Tx) (err error) { term, err = tx.TakeLeaderTerm(context.Background()); return err })
	return term
}

// add makes a registration with one schedule that was last fired, and is due, at these instants (UTC ms; due 0 is not due).
func (w *world) add(id, expression, zone string, last, due int64) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		ctx := context.Background()
		_, err := tx.UpsertRegistration(ctx, db.UpsertRegistrationParams{
			ID: id, OrgID: "default", RoutingKey: "generic:default:1", Repo: "acme/shop", Workflow: id, LockEntry: "{}", TriggerTypes: ",schedule,",
			CommitSha: "c0ffee", DefaultBranch: "main", SourceFile: ".kici/workflows/" + id + ".yaml",
		})
		return errors.Join(err, tx.SeedSchedule(ctx, db.SeedScheduleParams{
			RegistrationID: id, Expression: expression, Timezone: zone, OrgID: "default", LastFiredAt: last, NextAt: nullInt(due),
		}))
	})
}

func (w *world) row(id string) db.Schedule {
	w.t.Helper()
	rows, err := w.st.Read().SchedulesOfRegistration(context.Background(), id)
	if err != nil || len(rows) != 1 {
		w.t.Fatalf("%s: %+v %v", id, rows, err)
	}
	return rows[0]
}

func (w *world) now() (now int64) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error { now = tx.Now(); return nil })
	return now
}

// fires is what was emitted, by registration: the instants, as they stand in the event table.
func (w *world) fires() map[string][]string {
	w.t.Helper()
	rows, err := w.st.Read().EventsOfRun(context.Background(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string][]string{}
	for _, r := range rows {
		var f Fire
		if err := json.Unmarshal([]byte(r.Payload), &f); err != nil || r.RegistrationID != f.RegistrationID {
			w.t.Fatalf("%+v %v", r, err)
		}
		out[f.RegistrationID] = append(out[f.RegistrationID], f.ScheduledAt)
	}
	return out
}

// server is one coordinator's room.
type server struct {
	*Service
	events  *events
	metrics *obs.Metrics
}

// events writes events as the events' room does, or fails.
type events struct {
	mu   sync.Mutex
	fail func(e Event) error
}

func (v *events) EmitTx(tx *store.Tx, e Event) (string, error) {
	v.mu.Lock()
	fail := v.fail
	v.mu.Unlock()
	id := ci.NewID()
	err := tx.InsertEvent(context.Background(), db.InsertEventParams{
		ID: id, OrgID: e.OrgID, EventName: EventFire, Payload: string(e.Payload), SourceRepo: e.Repo, SourceRoutingKey: e.RoutingKey,
		TargetRepos: "[]", Emitter: "orchestrator", CreatedAt: tx.Now(), ExpiresAt: tx.Now() + 1000, RegistrationID: e.RegistrationID,
	})
	if err == nil && fail != nil {
		err = fail(e)
	}
	return id, err
}

type noRegistrations struct{}

func (noRegistrations) SeedMissing(context.Context, *store.Tx, string, int32) (string, error) {
	return "", nil
}

func (w *world) server() *server {
	s := &server{events: &events{}, metrics: obs.NewMetrics()}
	s.Service = New(Deps{
		Store: w.st, Events: s.events, Registrations: noRegistrations{}, Env: service.Env{Now: time.Now, NewID: ci.NewID},
		Log: slog.New(slog.DiscardHandler), Metrics: s.metrics,
	})
	return s
}

// counted is the value of a counter, of one reason or without.
func (s *server) counted(name, reason string) float64 {
	all, err := s.metrics.Registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range all {
		if family.GetName() != "kici_orch_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			if len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func format(ms int64) string { return time.UnixMilli(ms).UTC().Format(timeFormat) }

const hour = int64(time.Hour / time.Millisecond)
