package read

import (
	"context"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/db"
)

// timelineFacts is every row that the timeline of a run is made of.
type timelineFacts struct {
	run      db.TimelineRunRow
	jobs     []db.TimelineJobsRow
	needs    []db.TimelineNeedsRow
	assigned []db.TimelineAssignmentsRow
	launches []db.TimelineLaunchesRow
	steps    []db.TimelineStepsRow
	notes    []db.RunNotesRow
	statuses []db.TimelineStatusesRow
	emitted  []db.TimelineEmittedRow
	started  []db.TimelineStartedRow
	cause    []db.TimelineCauseRow
	reruns   []db.TimelineRerunsRow
	reasons  map[string][]db.TimelineReasonsRow // by shape, oldest first
	key      string                             // routing key of the caller, "" for all
	allSteps bool
	now      int64
}

// Limits of a timeline's page, and of what it looks at.
const (
	DefaultTimelineLimit = 200
	MaxTimelineLimit     = 1000
	maxTimelineShapes    = 40
)

// TimelineFilter asks for a page of a timeline.
type TimelineFilter struct {
	Job    string // name or id; "" is all, and the run itself
	Steps  bool   // also steps that went well
	Cursor string
	Limit  int
}

// Timeline is what happened to a run, oldest first. ref is what RunID accepts.
func (r *Reads) Timeline(ctx context.Context, s Scope, ref string, f TimelineFilter) (client.Timeline, error) {
	from, err := parseCursor(f.Cursor, position{-1, ""})
	if err != nil {
		return client.Timeline{}, err
	}
	facts := timelineFacts{key: s.RoutingKey, allSteps: f.Steps, now: r.now()}
	err = r.view(ctx, func(q *db.Queries) error {
		id, err := runID(ctx, q, s, ref)
		if err != nil {
			return err
		}
		if facts.run, err = q.TimelineRun(ctx, id); err != nil {
			return notFound(err, "run")
		}
		if err := s.check(facts.run.RoutingKey, "this run"); err != nil {
			return err
		}
		return facts.read(ctx, q)
	})
	if err != nil {
		return client.Timeline{}, err
	}
	all, cut := buildTimeline(facts)
	out := client.Timeline{RunID: facts.run.ID, Entries: []client.TimelineEntry{}, Cut: cut}
	limit := clamp(f.Limit, DefaultTimelineLimit, MaxTimelineLimit)
	known := f.Job == ""
	for _, e := range all {
		if f.Job != "" && e.Job != f.Job && e.JobID != f.Job {
			continue
		}
		known = true
		if !e.after(from) {
			continue
		}
		if len(out.Entries) == limit {
			out.NextCursor = e.before
			break
		}
		out.Entries = append(out.Entries, e.TimelineEntry)
	}
	if !known {
		return out, fmt.Errorf("job %q of this run %w", f.Job, ErrNotFound)
	}
	return out, nil
}

func (f *timelineFacts) read(ctx context.Context, q *db.Queries) (err error) {
	id := f.run.ID
	for _, load := range []func() error{
		func() error { f.jobs, err = q.TimelineJobs(ctx, id); return err },
		func() error { f.needs, err = q.TimelineNeeds(ctx, id); return err },
		func() error { f.assigned, err = q.TimelineAssignments(ctx, id); return err },
		func() error { f.launches, err = q.TimelineLaunches(ctx, id); return err },
		func() error { f.steps, err = q.TimelineSteps(ctx, id); return err },
		func() error { f.notes, err = q.RunNotes(ctx, id); return err },
		func() error { f.statuses, err = q.TimelineStatuses(ctx, id); return err },
		func() error { f.emitted, err = q.TimelineEmitted(ctx, id); return err },
		func() error { f.started, err = q.TimelineStarted(ctx, id, f.run.OrgID, f.key); return err },
		func() error { f.cause, err = q.TimelineCause(ctx, id); return err },
		func() error { return f.readReruns(ctx, q) },
		func() error { return f.readReasons(ctx, q) },
	} {
		if err := load(); err != nil {
			return err
		}
	}
	return nil
}

// readReruns reads the runs that repeated this one. All reruns of one original are listed under it.
func (f *timelineFacts) readReruns(ctx context.Context, q *db.Queries) (err error) {
	original := f.run.OriginalRunID
	if !original.Valid {
		original.String, original.Valid = f.run.ID, true
	}
	parent := original
	parent.String = f.run.ID
	f.reruns, err = q.TimelineReruns(ctx, original, parent)
	return err
}

// readReasons reads why jobs of the run's shapes waited, while some job of the run did.
func (f *timelineFacts) readReasons(ctx context.Context, q *db.Queries) error {
	f.reasons = map[string][]db.TimelineReasonsRow{}
	spans := map[string][2]int64{}
	var order []string
	for _, j := range f.jobs {
		if !j.QueuedAt.Valid || j.Shape == "" {
			continue
		}
		until := f.now
		if j.StartedAt.Valid {
			until = j.StartedAt.Int64
		} else if j.FinishedAt.Valid {
			until = j.FinishedAt.Int64
		}
		s, seen := spans[j.Shape]
		if !seen {
			order = append(order, j.Shape)
			s = [2]int64{j.QueuedAt.Int64, until}
		}
		spans[j.Shape] = [2]int64{min(s[0], j.QueuedAt.Int64), max(s[1], until)}
	}
	for _, shape := range order[:min(len(order), maxTimelineShapes)] {
		s := spans[shape]
		rows, err := q.TimelineReasons(ctx, shape, s[1], s[0])
		if err != nil {
			return err
		}
		f.reasons[shape] = rows
	}
	return nil
}
