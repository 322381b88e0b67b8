package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/schedule"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// measureSchedules measures the leader's look at 10,000 schedules in a store on the disk: none due, and all due at once.
func measureSchedules(ctx context.Context, b *bench) error {
	const schedules = 10_000
	dir := filepath.Join(b.dir, "schedules")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	st, err := store.Open(ctx, store.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	s, term, err := manySchedules(ctx, st, schedules)
	if err != nil {
		return err
	}
	idle, write, err := idleTicks(ctx, st, s, term)
	if err != nil {
		return err
	}
	b.rows = append(b.rows, row{
		What: fmt.Sprintf("tick of the clock, %d schedules, none due", schedules), Got: fmt.Sprintf("%.3f ms", idle.Seconds()*1000),
		Yardstick: fmt.Sprintf("a durable write %.2f ms", write.Seconds()*1000), Ratio: fmt.Sprintf("%.2f×", idle.Seconds()/write.Seconds()),
	})
	if err := st.Write(ctx, func(tx *store.Tx) error { return allDue(ctx, tx) }); err != nil {
		return err
	}
	began := time.Now()
	for left := schedules; left > 0; {
		if _, err := s.Tick(ctx, term); err != nil {
			return err
		}
		next, err := st.Read().NextScheduleAt(ctx)
		if err != nil {
			return err
		}
		if len(next) == 1 && next[0] > time.Now().UnixMilli() {
			left = 0
		}
	}
	took := time.Since(began)
	b.rows = append(b.rows, row{
		What: fmt.Sprintf("%d schedules due at once, until every event is written", schedules), Got: fmt.Sprintf("%.0f ms, %.0f/s", took.Seconds()*1000, schedules/took.Seconds()),
		Yardstick: fmt.Sprintf("a durable write %.2f ms", write.Seconds()*1000), Ratio: fmt.Sprintf("%.2f× each", took.Seconds()/schedules/write.Seconds()),
	})
	return nil
}

// idleTicks are the medians of a tick with nothing due and of a transaction that changes one row.
func idleTicks(ctx context.Context, st *store.Store, s *schedule.Service, term int64) (idle, write time.Duration, err error) {
	var ticks, writes []time.Duration
	for range 200 {
		began := time.Now()
		if _, err := s.Tick(ctx, term); err != nil {
			return 0, 0, err
		}
		ticks = append(ticks, time.Since(began))
		began = time.Now()
		if err := st.Write(ctx, func(tx *store.Tx) error { return tx.BumpRegistryVersion(ctx) }); err != nil {
			return 0, 0, err
		}
		writes = append(writes, time.Since(began))
	}
	return quantile(ticks, .5), quantile(writes, .5), nil
}

// allDue makes every schedule due an hour ago.
func allDue(ctx context.Context, tx *store.Tx) error {
	for page := (db.SchedulesAfterParams{MaxRows: 1000}); ; {
		rows, err := tx.SchedulesAfter(ctx, page)
		if err != nil || len(rows) == 0 {
			return err
		}
		ago := tx.Now() - 2*24*time.Hour.Milliseconds()
		for _, r := range rows {
			if _, err := tx.ReseedSchedule(ctx, db.ReseedScheduleParams{
				Now: ago, NextAt: sql.NullInt64{Int64: ago + 1, Valid: true}, RegistrationID: r.RegistrationID, Expression: r.Expression, Timezone: r.Timezone,
			}); err != nil {
				return err
			}
		}
		last := rows[len(rows)-1]
		page.AfterID, page.AfterExpression, page.AfterTimezone = last.RegistrationID, last.Expression, last.Timezone
	}
}

// emitter writes events as the server does.
type emitter struct{ s *event.Service }

func (e emitter) EmitTx(tx *store.Tx, f schedule.Event) (string, error) {
	return e.s.EmitTx(tx, event.Emit{OrgID: f.OrgID, Name: schedule.EventFire, Payload: f.Payload, SourceRepo: f.Repo, SourceRoutingKey: f.RoutingKey, RegistrationID: f.RegistrationID})
}

type quietRegistry struct{}

func (quietRegistry) EmitTx(*store.Tx, registration.Event) error { return nil }

// manySchedules registers workflows of 2 KB, each with one daily schedule in some zone.
func manySchedules(ctx context.Context, st *store.Store, n int) (*schedule.Service, int64, error) {
	env, log, metrics := service.Env{Now: time.Now, NewID: ci.NewID}, slog.New(slog.DiscardHandler), obs.NewMetrics()
	regs := registration.New(registration.Deps{Store: st, Events: quietRegistry{}, Env: env, Log: log})
	var term int64
	err := st.Write(ctx, func(tx *store.Tx) (err error) {
		if err := errors.Join(tx.InsertOrg(ctx, "default", 1), tx.SeedLeaderTerm(ctx)); err != nil {
			return err
		}
		term, err = tx.TakeLeaderTerm(ctx)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"}
	const perRepo = 100
	for repo := range n / perRepo {
		var workflows []lock.Workflow
		for i := range perRepo {
			k := repo*perRepo + i
			workflows = append(workflows, lock.Workflow{
				Name: fmt.Sprint("w", i), On: []lock.Trigger{{Type: "schedule", Cron: fmt.Sprintf("%d %d * * *", k%60, k%24), Timezone: zones[k%len(zones)]}},
				Jobs: []lock.Job{{Name: "build", RunsOn: lock.Selector{Labels: []string{"linux"}}, Steps: []lock.Step{{Run: fmt.Sprintf("%02000d", k)}}}},
			})
		}
		scope := db.WorkflowRegistration{OrgID: "default", RoutingKey: fmt.Sprint("k", repo), Repo: fmt.Sprint("acme/r", repo), CommitSha: "c", DefaultBranch: "main"}
		if _, err := regs.Register(ctx, scope, workflows); err != nil {
			return nil, 0, err
		}
	}
	events := event.New(event.Deps{Store: st, Limits: event.DefaultLimits, Env: env, Log: log, Metrics: metrics})
	return schedule.New(schedule.Deps{Store: st, Events: emitter{events}, Registrations: regs, Env: env, Log: log, Metrics: metrics}), term, nil
}
