// Package periodic runs the server's own named jobs (JOB-1, JOB-2): what deletes what is old, and what looks for things that
// nothing else would notice. Each is a duty of the leader, runs when its row says that it is due, never overlaps itself, and
// leaves in its row, in metrics and, when it failed, in the access log what became of it. An operator may run one at once.
package periodic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/prometheus/client_golang/prometheus"
)

// Errors of Trigger.
var (
	ErrUnknown = errors.New("there is no periodic job of that name")
	ErrNotHere = errors.New("periodic jobs run on the instance that leads, and this one does not; ask that one")
	ErrRunning = errors.New("the job is running")
)

// Job is one periodic job. Run gets the term that its writes must carry; its report is sentences for people. It returns soon
// after ctx ends, and may be run twice.
type Job struct {
	Name  string
	About string
	Every time.Duration
	Run   func(ctx context.Context, term int64) (report []string, err error)
}

// leader is who leads (cluster.Leader).
type leader interface {
	Term() (term int64, leading bool)
	While(ctx context.Context, fn func(ctx context.Context, term int64) error) error
}

// Deps is what the room needs. Failed is told of every failure, for the access log.
type Deps struct {
	Store      *store.Store
	Leader     leader
	InstanceID string
	Env        service.Env
	Log        *slog.Logger
	Registry   prometheus.Registerer
	Failed     func(job string, err error)
	Jobs       []Job
}

// Service is the room.
type Service struct {
	d       Deps
	log     *slog.Logger
	metrics metrics

	mu      sync.Mutex
	running map[string]bool
}

type metrics struct {
	runs                      *prometheus.CounterVec
	duration                  *prometheus.HistogramVec
	lastOK, lastFailure, rows *prometheus.GaugeVec
}

// New returns the room.
func New(d Deps) *Service {
	s := &Service{d: d, log: d.Log.With("component", "periodic"), running: map[string]bool{}}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kici_orch", Name: name, Help: help}, []string{"job"})
	}
	s.metrics = metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "kici_orch", Name: "job_runs_total", Help: "Runs of the server's own periodic jobs."}, []string{"job", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kici_orch", Name: "job_duration_seconds", Help: "How long they took.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 9),
		}, []string{"job"}),
		lastOK:      gauge("job_last_success_timestamp_seconds", "When one succeeded last."),
		lastFailure: gauge("job_last_failure_timestamp_seconds", "When one failed last."),
		rows:        gauge("job_consecutive_failures", "Failures since the last success."),
	}
	d.Registry.MustRegister(s.metrics.runs, s.metrics.duration, s.metrics.lastOK, s.metrics.lastFailure, s.metrics.rows)
	for _, j := range d.Jobs { // OBS-18
		s.metrics.runs.WithLabelValues(j.Name, "success")
		s.metrics.runs.WithLabelValues(j.Name, "failure")
		s.metrics.rows.WithLabelValues(j.Name)
	}
	return s
}

// Status is a job with how it went last, on whichever instance.
type Status struct {
	Job
	db.ScheduledJob
}

// List returns all jobs.
func (s *Service) List(ctx context.Context) ([]Status, error) {
	rows, err := s.d.Store.Read().ScheduledJobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("read periodic jobs: %w", err)
	}
	out := make([]Status, len(s.d.Jobs))
	for i, j := range s.d.Jobs {
		out[i].Job = j
		for _, row := range rows {
			if row.Name == j.Name {
				out[i].ScheduledJob = row
			}
		}
	}
	return out, nil
}

// Bounds of the loop: how long it sleeps at most, so that a row that somebody changed is seen, and how long a new leader waits
// with jobs that were never run.
const (
	longestSleep = time.Minute
	firstRun     = time.Minute
)

// Run runs what is due while this instance leads, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	return s.d.Leader.While(ctx, func(ctx context.Context, term int64) error {
		led := s.d.Env.NowMs()
		return service.Loop{
			Name: "periodic jobs", Interval: time.Second, Log: s.log,
			Tick: func(ctx context.Context) error { return s.tick(ctx, term, led) },
		}.Run(ctx)
	})
}

// tick runs what is due and then sleeps until the next is.
func (s *Service) tick(ctx context.Context, term, led int64) error {
	rows, err := s.d.Store.Read().ScheduledJobs(ctx)
	if err != nil {
		return fmt.Errorf("read periodic jobs: %w", err)
	}
	due, wait := next(s.d.Jobs, rows, led, s.d.Env.NowMs())
	for _, j := range due {
		if _, err := s.once(ctx, j, term); err != nil && !errors.Is(err, ErrRunning) {
			return err
		}
	}
	if len(due) > 0 {
		return nil
	}
	_ = service.Pause(ctx, wait)
	return nil
}

// next returns the jobs that are due now, or how long to wait for the first that will be. A job whose row lies in the future
// was run by a clock that was wrong, and is due.
func next(jobs []Job, rows []db.ScheduledJob, led, now int64) (due []Job, wait time.Duration) {
	last := map[string]int64{}
	for _, r := range rows {
		last[r.Name] = r.LastRunAt
	}
	wait = longestSleep
	for _, j := range jobs {
		at, ran := last[j.Name]
		left := time.Duration(at-now)*time.Millisecond + j.Every
		switch {
		case !ran:
			left = time.Duration(led-now)*time.Millisecond + firstRun
		case at > now:
			left = 0
		}
		if left <= 0 {
			due = append(due, j)
		} else {
			wait = min(wait, left)
		}
	}
	return due, wait
}

// Outcome is how one run went.
type Outcome struct {
	Took   time.Duration
	Report []string
	Err    error // of the job itself
}

// Trigger runs a job now. The leader alone can, because a job's writes carry the leader's term.
func (s *Service) Trigger(ctx context.Context, name string) (Outcome, error) {
	for _, j := range s.d.Jobs {
		if j.Name != name {
			continue
		}
		term, leading := s.d.Leader.Term()
		if !leading {
			return Outcome{}, ErrNotHere
		}
		return s.once(ctx, j, term)
	}
	return Outcome{}, fmt.Errorf("%w: %q", ErrUnknown, name)
}

// once runs a job and records it. Its error says that it was not run, or that the record could not be written.
func (s *Service) once(ctx context.Context, j Job, term int64) (o Outcome, err error) {
	if !s.begin(j.Name) {
		return o, ErrRunning
	}
	defer s.end(j.Name)
	began := s.d.Env.Now()
	o.Report, o.Err = guarded(ctx, j, term)
	o.Took = s.d.Env.Now().Sub(began)
	if ctx.Err() != nil {
		return o, nil // stopped; whoever leads next runs it again
	}
	s.count(j.Name, o)
	if o.Err != nil {
		s.log.Error("periodic job failed", "job", j.Name, "err", o.Err)
		s.d.Failed(j.Name, o.Err)
	} else {
		s.log.Info("periodic job", "job", j.Name, "ms", o.Took.Milliseconds(), "report", o.Report)
	}
	return o, s.record(ctx, j.Name, term, o)
}

// guarded keeps a panic of one job from the others.
func guarded(ctx context.Context, j Job, term int64) (report []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return j.Run(ctx, term)
}

func (s *Service) record(ctx context.Context, name string, term int64, o Outcome) error {
	err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
		p := db.RecordScheduledJobParams{
			Name: name, LastRunAt: s.d.Env.NowMs(), LastOkAt: s.d.Env.NowMs(), DurationMs: o.Took.Milliseconds(), InstanceID: s.d.InstanceID,
		}
		if o.Err != nil {
			p.LastOkAt, p.Failures, p.LastError = 0, 1, clip(o.Err.Error())
		}
		return tx.RecordScheduledJob(ctx, p)
	})
	if err != nil {
		return fmt.Errorf("record periodic job %s: %w", name, err)
	}
	return nil
}

const errorKept = 2000

func clip(text string) string { return text[:min(len(text), errorKept)] }

func (s *Service) count(name string, o Outcome) {
	now := float64(s.d.Env.NowMs()) / 1000
	s.metrics.duration.WithLabelValues(name).Observe(o.Took.Seconds())
	if o.Err == nil {
		s.metrics.runs.WithLabelValues(name, "success").Inc()
		s.metrics.lastOK.WithLabelValues(name).Set(now)
		s.metrics.rows.WithLabelValues(name).Set(0)
		return
	}
	s.metrics.runs.WithLabelValues(name, "failure").Inc()
	s.metrics.lastFailure.WithLabelValues(name).Set(now)
	s.metrics.rows.WithLabelValues(name).Inc()
}

func (s *Service) begin(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[name] {
		return false
	}
	s.running[name] = true
	return true
}

func (s *Service) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, name)
}
