package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/store"
	_ "modernc.org/sqlite"
)

// measureHistory compares what a job costs a server with many finished runs in its store with what it costs one without. Both serve
// at the same time and take turns, so that what else the machine does falls on both.
func measureHistory(ctx context.Context, b *bench) error {
	runs, jobs := 100_000, 500
	if b.quick {
		runs, jobs = 10_000, 200
	}
	old, err := b.jobServer(ctx, "history", runs)
	if err != nil {
		return err
	}
	defer old.stop()
	fresh, err := b.jobServer(ctx, "empty", 0)
	if err != nil {
		return err
	}
	defer fresh.stop()
	var with, without []time.Duration
	for range 5 {
		d, err := fresh.work(ctx, jobs)
		if err != nil {
			return err
		}
		without = append(without, d)
		if d, err = old.work(ctx, jobs); err != nil {
			return err
		}
		with = append(with, d)
	}
	each := func(d []time.Duration) time.Duration { return quantile(d, .5) / time.Duration(jobs) }
	ratio := each(with).Seconds() / each(without).Seconds()
	two := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
	b.add(row{
		What: fmt.Sprintf("processor time of a job with %d finished runs in the store", runs), Goal: "≤ 1.1× of an empty one", Got: two(each(with)),
		Yardstick: "empty " + two(each(without)), Ratio: fmt.Sprintf("%.2f×", ratio),
	}, ratio <= 1.1)
	return nil
}

// jobServer is a server with fake agents.
type jobServer struct {
	*server
	origin   *origin
	crowd    *crowd
	finished atomic.Int64
}

// jobServer starts one with a history of so many runs. They are copies of a real one, each with its rows in every table that grows
// with runs.
func (b *bench) jobServer(ctx context.Context, name string, history int) (*jobServer, error) {
	s, err := b.start(ctx, filepath.Join(b.dir, name))
	if err != nil {
		return nil, err
	}
	j := &jobServer{server: s}
	if j.origin, err = b.repository(ctx, s, "fake", "true"); err != nil {
		return nil, err
	}
	if err := j.gather(ctx); err != nil {
		return nil, err
	}
	if _, err := j.work(ctx, 1); err != nil || history == 0 {
		return j, err
	}
	j.stop()
	if err := fill(ctx, filepath.Join(s.dir, store.FileName), history); err != nil {
		return nil, fmt.Errorf("fill the history: %w", err)
	}
	if err := s.launch(ctx, b.kici); err != nil {
		return nil, err
	}
	if err := s.wait(ctx, "/ready"); err != nil {
		return nil, err
	}
	return j, j.gather(ctx)
}

func (j *jobServer) gather(ctx context.Context) (err error) {
	j.crowd, err = gather(ctx, j.server, 16, []string{"fake"}, func(a *fakeAgent) { a.finished = func(string) { j.finished.Add(1) } })
	return err
}

func (j *jobServer) stop() {
	j.crowd.leave()
	j.server.stop()
}

// work runs n jobs, a few at a time, and returns what processor time they took.
func (j *jobServer) work(ctx context.Context, n int) (time.Duration, error) {
	before, err := cpu(j.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	from := j.finished.Load()
	for sent := 0; j.finished.Load() < from+int64(n); {
		switch open := int64(sent) - (j.finished.Load() - from); {
		case ctx.Err() != nil:
			return 0, fmt.Errorf("only %d of %d jobs finished: %s", j.finished.Load()-from, n, j.log)
		case sent < n && open < 32:
			if err := j.origin.push(ctx); err != nil {
				return 0, err
			}
			sent++
		default:
			time.Sleep(time.Millisecond)
		}
	}
	after, err := cpu(j.cmd.Process.Pid)
	return after - before, err
}

// fill multiplies the rows of the one run in a store that nobody serves.
func fill(ctx context.Context, file string, runs int) error {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=synchronous(OFF)&_pragma=foreign_keys(0)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	// Ids of version 7 begin with the time: these are older than all that comes.
	id := func(kind string) string { return "printf('00000000-%04x-7000-%04x-%012x', n/65536, " + kind + ", n)" }
	for _, t := range []struct {
		table string
		set   map[string]string
	}{
		{"agents", map[string]string{ // of runs that had an agent of their own
			"id": "CASE id WHEN 'bench-0' THEN " + id("0") + " END", "type": "'bare-metal'", "state": "'gone'", "instance_id": "''", "session_id": "''",
			"token_hash": "NULL", "requested_at": "requested_at-1000*n", "ended_at": "requested_at-1000*n",
		}},
		{"deliveries", map[string]string{"id": id("1"), "delivery_id": "'old-'||n", "run_id": id("2"), "received_at": "received_at-1000*n"}},
		{"execution_runs", map[string]string{
			"id": id("2"), "number": "-n", "delivery_id": id("1"), "dedup_key": id("1") + "||':bench'", "created_at": "created_at-1000*n",
			"started_at": "started_at-1000*n", "finished_at": "finished_at-1000*n",
		}},
		{"execution_jobs", map[string]string{
			"id": id("3"), "run_id": id("2"), "created_at": "created_at-1000*n", "queued_at": "queued_at-1000*n", "ready_at": "ready_at-1000*n",
			"started_at": "started_at-1000*n", "finished_at": "finished_at-1000*n",
		}},
		{"execution_steps", map[string]string{"job_id": id("3"), "run_id": id("2")}},
		{"assignments", map[string]string{"job_id": id("3"), "run_id": id("2"), "created_at": "created_at-1000*n", "ended_at": "ended_at-1000*n"}},
		{"kici_events", map[string]string{"id": "CASE WHEN event_name LIKE '\\_\\_%' ESCAPE '\\' THEN " + id("4+(event_name LIKE '__job%')") + " END", "source_run_id": id("2"), "source_job_id": id("3"), "created_at": "created_at-1000*n"}},
	} {
		if err := multiply(ctx, db, t.table, t.set, runs); err != nil {
			return fmt.Errorf("%s: %w", t.table, err)
		}
	}
	return nil
}

// multiply inserts n copies of every row of a table, with some columns computed from n. Rows whose first column comes to nothing are
// left out.
func multiply(ctx context.Context, db *sql.DB, table string, set map[string]string, n int) error {
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		return err
	}
	defer rows.Close()
	var columns, values []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		columns = append(columns, name)
		if v, ok := set[name]; ok {
			name = v
		}
		values = append(values, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	_ = rows.Close()
	// Oldest first, as they would have come.
	_, err = db.ExecContext(ctx, fmt.Sprintf(
		"WITH RECURSIVE c(n) AS (SELECT %d UNION ALL SELECT n-1 FROM c WHERE n > 1) INSERT INTO %s (%s) SELECT %s FROM c CROSS JOIN (SELECT * FROM %s) t WHERE %s IS NOT NULL",
		n, table, strings.Join(columns, ", "), strings.Join(values, ", "), table, values[0]))
	return err
}
