package schedule

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// fireDue fires a batch in one transaction. When that fails for another reason than lost leadership, each schedule of it gets a
// transaction of its own, so that one cannot hold back the others (XC-55).
func (s *Service) fireDue(ctx context.Context, term int64) error {
	var rows []db.DueSchedulesRow
	var fired int
	err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) (err error) {
		fired = 0
		if rows, err = tx.DueSchedules(ctx, tx.Now(), batch); err != nil {
			return err
		}
		for _, row := range rows {
			n, err := s.settle(ctx, tx, row)
			if err != nil {
				return err
			}
			fired += n
		}
		return nil
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrNotLeader) || len(rows) == 0 {
		s.count(fired, err)
		return err
	}
	return s.fireEach(ctx, term, rows)
}

func (s *Service) fireEach(ctx context.Context, term int64, rows []db.DueSchedulesRow) error {
	var last error
	for _, row := range rows {
		var fired int
		err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) (err error) {
			fired, err = s.settle(ctx, tx, row)
			return err
		})
		s.count(fired, err)
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, store.ErrNotLeader):
			return err
		default:
			s.d.Metrics.ScheduleFailures.WithLabelValues("error").Inc()
			s.log.Error("schedule did not fire", "registration_id", row.RegistrationID, "workflow", row.Workflow, "expression", row.Expression, "err", err)
			last = fmt.Errorf("schedule %q of %s: %w", row.Expression, row.Workflow, err)
		}
	}
	return last
}

func (s *Service) count(fired int, err error) {
	if err == nil {
		s.d.Metrics.ScheduleFires.Add(float64(fired))
	}
}

// settle does with one schedule what was decided, in the caller's transaction; fired is 1 when it has fired.
func (s *Service) settle(ctx context.Context, tx *store.Tx, row db.DueSchedulesRow) (fired int, err error) {
	s.mu.Lock()
	parsed, perr := s.known.get(row.Expression, row.Timezone)
	s.mu.Unlock()
	d := decide(row, parsed, perr, tx.Now())
	if d.action == actFire {
		return s.fire(ctx, tx, row, d)
	}
	if d.action == actRefuse {
		s.d.Metrics.ScheduleFailures.WithLabelValues("invalid").Inc()
		s.log.Warn("schedule cannot fire", "registration_id", row.RegistrationID, "workflow", row.Workflow, "expression", row.Expression, "reason", d.why)
	}
	_, err = tx.SetScheduleNext(ctx, db.SetScheduleNextParams{
		NextAt: nullInt(d.next), Error: d.why, RegistrationID: row.RegistrationID, Expression: row.Expression, Timezone: row.Timezone,
		LastFiredAt: row.LastFiredAt,
	})
	return 0, err
}

// fire takes an instant and emits its event (CRN-3).
func (s *Service) fire(ctx context.Context, tx *store.Tx, row db.DueSchedulesRow, d decision) (int, error) {
	n, err := tx.ClaimSchedule(ctx, db.ClaimScheduleParams{
		Instant: d.instant, NextAt: nullInt(d.next), RegistrationID: row.RegistrationID, Expression: row.Expression, Timezone: row.Timezone,
	})
	if err != nil || n == 0 {
		return 0, err
	}
	payload, err := json.Marshal(Fire{
		CronExpression: row.Expression, Timezone: row.Timezone, RegistrationID: row.RegistrationID, WorkflowName: row.Workflow,
		RoutingKey: row.RoutingKey, RepoIdentifier: row.Repo, ScheduledAt: time.UnixMilli(d.instant).UTC().Format(timeFormat),
		CommitSHA: row.CommitSha, SourceFile: row.SourceFile,
	})
	if err != nil {
		return 0, err
	}
	id, err := s.d.Events.EmitTx(tx, Event{OrgID: row.OrgID, RegistrationID: row.RegistrationID, Repo: row.Repo, RoutingKey: row.RoutingKey, Payload: payload})
	if err != nil {
		return 0, fmt.Errorf("emit: %w", err)
	}
	_, err = tx.SetScheduleEvent(ctx, db.SetScheduleEventParams{
		EventID: id, RegistrationID: row.RegistrationID, Expression: row.Expression, Timezone: row.Timezone, Instant: d.instant,
	})
	return 1, err
}

// timeFormat is RFC 3339 with milliseconds (D1).
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// Fire is the payload of EventFire (CRN-4).
type Fire struct {
	CronExpression string `json:"cronExpression"`
	Timezone       string `json:"timezone"`
	RegistrationID string `json:"registrationId"`
	WorkflowName   string `json:"workflowName"`
	RoutingKey     string `json:"routingKey"`
	RepoIdentifier string `json:"repoIdentifier"`
	ScheduledAt    string `json:"scheduledAt"` // the instant that was due
	CommitSHA      string `json:"commitSha,omitempty"`
	SourceFile     string `json:"sourceFile,omitempty"`
}

func nullInt(v int64) sql.NullInt64 { return sql.NullInt64{Int64: v, Valid: v != 0} }
