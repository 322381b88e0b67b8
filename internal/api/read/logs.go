package read

import (
	"context"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/store/db"
)

// JobLog is a job whose log may be read: who it is, which attempt, and which steps have ended.
type JobLog struct {
	Ref   LogRef
	Name  string
	Ended bool // the job has ended: no line can be added
	Steps []client.Step
}

// JobLog finds the job and checks that the caller may see it. run may be empty when job alone is enough.
func (r *Reads) JobLog(ctx context.Context, s Scope, run, job string) (JobLog, error) {
	var out JobLog
	err := r.view(ctx, func(q *db.Queries) error {
		id, err := r.logJob(ctx, q, s, run, job)
		if err != nil {
			return err
		}
		f, err := readWhy(ctx, q, s, id)
		if err != nil {
			return err
		}
		out = JobLog{
			Ref:  LogRef{RunID: f.job.RunID, JobID: f.job.ID, Attempt: int(f.job.Attempt)},
			Name: f.job.Name, Ended: ci.JobStatus(f.job.Status).Terminal(), Steps: f.steps,
		}
		return nil
	})
	return out, err
}

// logJob accepts a job's name too when the run is given.
func (r *Reads) logJob(ctx context.Context, q *db.Queries, s Scope, run, job string) (string, error) {
	if run == "" {
		return jobID(ctx, q, s, job)
	}
	runID, err := runID(ctx, q, s, run)
	if err != nil {
		return "", err
	}
	if id, err := q.ReadJobIDByName(ctx, runID, job); err == nil {
		return id, nil
	}
	id, err := jobID(ctx, q, s, job)
	if err != nil {
		return "", fmt.Errorf("job %q of run %s %w", job, run, ErrNotFound)
	}
	row, err := q.ReadJobRow(ctx, id, s.OrgID)
	if err == nil && row.RunID != runID {
		return "", fmt.Errorf("job %q of run %s %w", job, run, ErrNotFound)
	}
	return id, err
}

// StepComplete reports whether no line can be added to a step any more: the job has ended, or one of the later steps has a line. That
// the step itself has ended is not enough: an agent reports that before the last lines have arrived, but it sends the lines of
// its steps in order.
func StepComplete(ctx context.Context, logs LogReader, ref LogRef, ended bool, later []client.Step) (bool, error) {
	for _, st := range later {
		if ended {
			break
		}
		lines, _, err := logs.ReadLines(ctx, ref, st.Index, "", 1)
		if err != nil {
			return false, fmt.Errorf("read log: %w", err)
		}
		ended = len(lines) > 0
	}
	return ended, nil
}

// later are the steps after one that may have lines: those that have begun.
func (l JobLog) later(step int) (out []client.Step) {
	for _, s := range l.Steps {
		if s.Index > step && ci.StepStatus(s.Status) != ci.StepPending {
			out = append(out, s)
		}
	}
	return out
}

// NextStep is the step that is known to follow.
func (l JobLog) NextStep(step int) (int, bool) {
	for _, s := range l.Steps { // by index
		if s.Index > step {
			return s.Index, true
		}
	}
	return 0, false
}

// StepName is what a step is called, "" when it is not known yet.
func (l JobLog) StepName(step int) string {
	for _, s := range l.Steps {
		if s.Index == step {
			return s.Name
		}
	}
	return ""
}

// Log is a window of a step's log. Whether it is complete is decided before it is read, so that this is never claimed too early.
func (r *Reads) Log(ctx context.Context, l JobLog, step int, cursor string, limit int) (client.LogPage, error) {
	limit = clamp(limit, 500, MaxLogLimit)
	complete, err := StepComplete(ctx, r.conf.Logs, l.Ref, l.Ended, l.later(step))
	if err != nil {
		return client.LogPage{}, err
	}
	lines, next, err := r.conf.Logs.ReadLines(ctx, l.Ref, step, cursor, limit)
	if err != nil {
		return client.LogPage{}, fmt.Errorf("read log: %w", err)
	}
	if lines == nil {
		lines = []client.LogLine{}
	}
	page := client.LogPage{Lines: lines, NextCursor: next}
	if !complete || len(lines) == limit {
		return page, nil
	}
	more, _, err := r.conf.Logs.ReadLines(ctx, l.Ref, step, next, 1) // a page may also be short because its lines are long
	page.Complete = err == nil && len(more) == 0
	return page, nil
}

// LogLines is how many lines a step's log has by now.
func (r *Reads) LogLines(ctx context.Context, l JobLog, step int) (int64, error) {
	return countLines(ctx, r.conf.Logs, l.Ref, step)
}

func countLines(ctx context.Context, logs LogReader, ref LogRef, step int) (int64, error) {
	_, n, err := logs.SeekLine(ctx, ref, step, 1<<62)
	if err != nil {
		return 0, fmt.Errorf("read log: %w", err)
	}
	return n, nil
}

// Tail asks for the last Lines lines that stand at or before line UpTo (0 = the end).
type Tail struct {
	Lines int
	UpTo  int64
}

// TailLines reads the end of a step's log.
func TailLines(ctx context.Context, logs LogReader, ref LogRef, step int, t Tail) ([]client.LogLine, string, error) {
	end := int64(1<<62) - 1
	if t.UpTo > 0 {
		end = t.UpTo
	}
	_, total, err := logs.SeekLine(ctx, ref, step, end+1)
	if err != nil {
		return nil, "", fmt.Errorf("read log: %w", err)
	}
	return Window(ctx, logs, ref, step, max(total-int64(t.Lines), 0)+1, total)
}

// Window reads the lines from first to last, both from 1, and gives the cursor behind them. It holds them all in memory.
func Window(ctx context.Context, logs LogReader, ref LogRef, step int, first, last int64) ([]client.LogLine, string, error) {
	cursor, before, err := logs.SeekLine(ctx, ref, step, first)
	out := []client.LogLine{}
	for want := last - before; err == nil && want > 0; want = last - before - int64(len(out)) {
		var lines []client.LogLine
		var next string
		lines, next, err = logs.ReadLines(ctx, ref, step, cursor, int(min(want, MaxLogLimit)))
		if len(lines) == 0 {
			break
		}
		out, cursor = append(out, lines...), next
	}
	if err != nil {
		return nil, "", fmt.Errorf("read log: %w", err)
	}
	return out, cursor, nil
}

// SearchLog finds a text in a step's log: plain text, whatever its case. limit is clamped (0 is 50).
func (r *Reads) SearchLog(ctx context.Context, l JobLog, step int, q LogQuery) (client.LogMatches, error) {
	if q.Text == "" || len(q.Text) > logs.MaxQuery {
		return client.LogMatches{}, fmt.Errorf("%w: q must have 1 to %d bytes", ErrInvalid, logs.MaxQuery)
	}
	q.Limit = clamp(q.Limit, 50, logs.MaxMatches)
	f, err := r.conf.Logs.SearchLines(ctx, l.Ref, step, q)
	if err != nil {
		return client.LogMatches{}, fmt.Errorf("search log: %w", err)
	}
	return client.LogMatches{Lines: f.Lines, NextCursor: f.Next, Searched: f.Searched, Complete: f.Done}, nil
}
