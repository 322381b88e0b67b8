package periodic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/prometheus/client_golang/prometheus"
)

// Windows say how long things are kept; 0 keeps them for ever.
type Windows struct {
	Runs   time.Duration // with jobs, steps, logs, statuses and the deliveries that started them
	Audit  time.Duration
	Checks time.Duration
}

// Fixed windows of what has no setting: rows of the ledger that have ended (QUE-19), and why jobs waited.
const ledgerKept = 30 * 24 * time.Hour

// instancesKept is how long a server that has stopped, or of which nothing is heard, is still shown (CLU-7).
const instancesKept = 7 * 24 * time.Hour

// How retention goes about it (STO-15): what is old is reported for a week before it is deleted for the first time, and a
// transaction deletes few rows, so that nobody waits for it.
const (
	announcement = 7 * 24 * time.Hour
	runsABatch   = 20
	rowsABatch   = 500
	pause        = 20 * time.Millisecond // between transactions
)

// RetentionDeps is what retention needs.
type RetentionDeps struct {
	Store    *store.Store
	Windows  func() Windows
	Logs     func(runID string) error // deletes the logs of a run; repeating it is no error
	Env      service.Env
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Retention deletes what has been kept for long enough.
type Retention struct {
	d       RetentionDeps
	log     *slog.Logger
	deleted *prometheus.CounterVec
}

// NewRetention returns the job's work.
func NewRetention(d RetentionDeps) *Retention {
	r := &Retention{d: d, log: d.Log.With("component", "retention"), deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "kici_orch", Name: "retention_rows_deleted_total", Help: "Rows that were kept for long enough.",
	}, []string{"table"})}
	d.Registry.MustRegister(r.deleted)
	for _, table := range []string{"execution_runs", "deliveries", "access_log", "commit_statuses", "agents", "scaler_failures", "shape_reason_log", "cluster_instances"} {
		r.deleted.WithLabelValues(table)
	}
	return r
}

// subject is one kind of thing that a setting keeps for a while.
type subject struct {
	name   string
	window time.Duration
	count  func(ctx context.Context, q *db.Queries, before int64) (int64, error)
	delete func(ctx context.Context, term, before int64) (int64, error)
}

// Run deletes what is old, all kinds one after another. One that fails does not keep the others from their turn.
func (r *Retention) Run(ctx context.Context, term int64) (report []string, err error) {
	w := r.d.Windows()
	subjects := []subject{
		{"runs", w.Runs, func(ctx context.Context, q *db.Queries, before int64) (int64, error) {
			return q.CountOldRuns(ctx, before)
		}, r.runs},
		{"deliveries", w.Runs, func(ctx context.Context, q *db.Queries, before int64) (int64, error) {
			return q.CountOldDeliveries(ctx, before)
		}, r.byOrg("deliveries", deliveries)},
		{"access log entries", w.Audit, func(ctx context.Context, q *db.Queries, before int64) (int64, error) {
			return q.CountOldAccessLog(ctx, before)
		}, r.byOrg("access_log", accessLog)},
		{"commit statuses", w.Checks, func(ctx context.Context, q *db.Queries, before int64) (int64, error) {
			return q.CountOldChecks(ctx, before)
		}, r.byOrg("commit_statuses", checks)},
	}
	for _, s := range subjects {
		line, serr := r.keep(ctx, term, s)
		if line != "" {
			report = append(report, line)
		}
		err = errors.Join(err, serr)
	}
	lines, lerr := r.ledger(ctx, term)
	return append(report, lines...), errors.Join(err, lerr)
}

// keep looks after one kind: it announces, or deletes what was announced long enough ago.
func (r *Retention) keep(ctx context.Context, term int64, s subject) (string, error) {
	if s.window <= 0 {
		return "", r.withdraw(ctx, term, s.name)
	}
	now, until, err := r.announced(ctx, term, s)
	if err != nil {
		return "", fmt.Errorf("retention of %s: %w", s.name, err)
	}
	before := now - s.window.Milliseconds()
	if until > now {
		n, err := s.count(ctx, r.d.Store.Read(), before)
		if err != nil || n == 0 {
			return "", err
		}
		line := fmt.Sprintf("%d %s are older than %s and would be deleted; deleting begins %s", n, s.name, days(s.window), time.UnixMilli(until).UTC().Format(time.DateOnly))
		r.log.Info("retention reports only", "kind", s.name, "rows", n, "deletes_from", until)
		return line, nil
	}
	n, err := s.delete(ctx, term, before)
	if err != nil {
		return "", fmt.Errorf("retention of %s: %w", s.name, err)
	}
	if n == 0 {
		return "", nil
	}
	return fmt.Sprintf("deleted %d %s older than %s", n, s.name, days(s.window)), nil
}

func days(d time.Duration) string {
	return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + " days"
}

func metaKey(name string) string { return "retention/" + strings.ReplaceAll(name, " ", "_") }

// announced returns the instant, and from when on deleting is allowed. The announcement is a row with the window that it was
// made for: a shorter one concerns more, and is announced anew.
func (r *Retention) announced(ctx context.Context, term int64, s subject) (now, until int64, err error) {
	err = r.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
		now = tx.Now()
		stored, err := tx.ClusterMetaOrNone(ctx, metaKey(s.name))
		if err != nil {
			return err
		}
		if len(stored) > 0 {
			var at, window int64
			if _, err := fmt.Sscanf(stored[0], "%d:%d", &at, &window); err == nil && s.window.Milliseconds() >= window {
				until = at + announcement.Milliseconds()
				if s.window.Milliseconds() == window {
					return nil
				}
				return tx.SetClusterMeta(ctx, metaKey(s.name), fmt.Sprintf("%d:%d", at, s.window.Milliseconds()))
			}
		}
		until = now + announcement.Milliseconds()
		return tx.SetClusterMeta(ctx, metaKey(s.name), fmt.Sprintf("%d:%d", now, s.window.Milliseconds()))
	})
	return now, until, err
}

// withdraw forgets the announcement of what is kept for ever now.
func (r *Retention) withdraw(ctx context.Context, term int64, name string) error {
	stored, err := r.d.Store.Read().ClusterMetaOrNone(ctx, metaKey(name))
	if err != nil || len(stored) == 0 {
		return err
	}
	return r.d.Store.Lead(ctx, term, func(tx *store.Tx) error { return tx.DeleteClusterMeta(ctx, metaKey(name)) })
}

// runs deletes ended runs with all that is theirs. Logs go first: a crash between leaves a run without its old logs, never
// logs without a run.
func (r *Retention) runs(ctx context.Context, term, before int64) (total int64, err error) {
	orgs, err := r.d.Store.Read().Orgs(ctx)
	if err != nil {
		return 0, err
	}
	for _, org := range orgs {
		for {
			ids, err := r.d.Store.Read().OldRuns(ctx, org.ID, before, runsABatch)
			if err != nil {
				return total, err
			}
			n, err := r.deleteRuns(ctx, term, before, ids)
			total += n
			if err != nil {
				return total, err
			}
			if n == 0 {
				break
			}
			if err := service.Pause(ctx, pause); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

func (r *Retention) deleteRuns(ctx context.Context, term, before int64, ids []string) (n int64, err error) {
	for _, id := range ids {
		if err := r.d.Logs(id); err != nil {
			return 0, fmt.Errorf("logs of run %s: %w", id, err)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	err = r.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
		n = 0
		for _, id := range ids {
			gone, err := tx.DeleteOldRun(ctx, id, before)
			if err != nil {
				return err
			}
			n += gone
		}
		return nil
	})
	if err == nil {
		r.deleted.WithLabelValues("execution_runs").Add(float64(n))
	}
	return n, err
}

// batch deletes up to rowsABatch rows.
type batch func(ctx context.Context, tx *store.Tx, org string, before int64) (int64, error)

func deliveries(ctx context.Context, tx *store.Tx, org string, before int64) (int64, error) {
	return tx.DeleteOldDeliveries(ctx, org, before, rowsABatch)
}

func accessLog(ctx context.Context, tx *store.Tx, org string, before int64) (int64, error) {
	return tx.DeleteOldAccessLog(ctx, org, before, rowsABatch)
}

func checks(ctx context.Context, tx *store.Tx, org string, before int64) (int64, error) {
	return tx.DeleteOldChecks(ctx, org, before, rowsABatch)
}

func (r *Retention) byOrg(table string, b batch) func(ctx context.Context, term, before int64) (int64, error) {
	return func(ctx context.Context, term, before int64) (total int64, err error) {
		orgs, err := r.d.Store.Read().Orgs(ctx)
		if err != nil {
			return 0, err
		}
		for _, org := range orgs {
			n, err := r.all(ctx, term, table, func(tx *store.Tx) (int64, error) { return b(ctx, tx, org.ID, before) })
			total += n
			if err != nil {
				return total, err
			}
		}
		return total, nil
	}
}

// all repeats a batch until nothing is left.
func (r *Retention) all(ctx context.Context, term int64, table string, one func(tx *store.Tx) (int64, error)) (total int64, err error) {
	for {
		var n int64
		err := r.d.Store.Lead(ctx, term, func(tx *store.Tx) (err error) {
			n, err = one(tx)
			return err
		})
		if err != nil || n == 0 {
			return total, err
		}
		total += n
		r.deleted.WithLabelValues(table).Add(float64(n))
		if err := service.Pause(ctx, pause); err != nil {
			return total, err
		}
	}
}

// ledger deletes rows that have ended long ago and concern nobody: no setting keeps them.
func (r *Retention) ledger(ctx context.Context, term int64) (report []string, err error) {
	before := r.d.Env.NowMs() - ledgerKept.Milliseconds()
	for _, x := range []struct {
		table, words string
		one          func(tx *store.Tx) (int64, error)
	}{
		{"agents", "agents that are gone", func(tx *store.Tx) (int64, error) { return tx.DeleteGoneAgents(ctx, before, rowsABatch) }},
		{"scaler_failures", "failed launches", func(tx *store.Tx) (int64, error) { return tx.DeleteOldScalerFailures(ctx, before, rowsABatch) }},
		{"shape_reason_log", "reasons of waiting", func(tx *store.Tx) (int64, error) { return tx.DeleteOldShapeReasonLog(ctx, before, rowsABatch) }},
		{"shape_reasons", "reasons of nothing", func(tx *store.Tx) (int64, error) { return tx.DeleteIdleShapeReasons(ctx, before) }},
	} {
		n, xerr := r.all(ctx, term, x.table, x.one)
		if xerr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", x.words, xerr))
		}
		if n > 0 {
			report = append(report, fmt.Sprintf("deleted %d %s older than %s", n, x.words, days(ledgerKept)))
		}
	}
	n, ierr := r.instances(ctx, term)
	if n > 0 {
		report = append(report, fmt.Sprintf("deleted %d servers that have not run for %s", n, days(instancesKept)))
	}
	return report, errors.Join(err, ierr)
}

// instances removes servers that do not come back, with what the ledger has of them. Were one to come back all the same, it
// would write its rows anew, and end what it finds on its machine without a row.
func (r *Retention) instances(ctx context.Context, term int64) (total int64, err error) {
	err = r.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
		total = 0
		rows, err := tx.DeadInstances(ctx, tx.Now()-instancesKept.Milliseconds(), rowsABatch)
		if err != nil {
			return err
		}
		for _, row := range rows {
			n, err := forget(ctx, tx, row)
			if err != nil {
				return fmt.Errorf("%s: %w", row.InstanceID, err)
			}
			total += n
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("servers that are gone: %w", err)
	}
	r.deleted.WithLabelValues("cluster_instances").Add(float64(total))
	return total, nil
}

func forget(ctx context.Context, tx *store.Tx, row db.ClusterInstance) (int64, error) {
	if _, err := tx.CloseAgentsOfNode(ctx, tx.Now(), ci.GoneLost, row.InstanceID); err != nil {
		return 0, err
	}
	n, err := tx.DeleteInstance(ctx, row.InstanceID, row.HeartbeatAt, row.StartedAt)
	if err != nil || n == 0 {
		return n, err
	}
	if _, err := tx.DeleteScalersOfNode(ctx, row.InstanceID); err != nil {
		return n, err
	}
	_, err = tx.DeleteBackoffsOfNode(ctx, row.InstanceID)
	return n, err
}
