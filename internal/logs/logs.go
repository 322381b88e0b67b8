// Package logs keeps the output of steps: one file of JSON lines (STO-10) for each step of each attempt of a job. Agents
// append by byte offset, so that a repeated request stores nothing twice and a lost one leaves no hole; what is
// acknowledged is on the disk. Files hold whole lines only, which lets readers page through them without a lock.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
)

// Job names the attempt of a job whose logs are meant.
type Job struct {
	RunID, JobID string
	Attempt      int
}

// The errors of Append that callers tell apart.
var (
	ErrOffset      = errors.New("offset is beyond the stored log")     // LogAck.Offset is where to go on
	ErrUnavailable = errors.New("log storage refuses writes just now") // try again later, from the same offset
	ErrLine        = errors.New("a log line is too long or does not end")
	ErrName        = errors.New("invalid name of a step log")
)

const (
	chunkBytes  = 256 << 10 // read, written and held in memory at once
	maxOpenJobs = 256
	maxStep     = 10_000

	// patience is how long agents are asked to keep their lines when the disk refuses them. After it they are dropped and
	// the gap is marked, so that a full disk fails no job (XC-134).
	patience = 30 * time.Second
)

type publisher interface {
	Publish(topic store.Topic, key string)
}

// Config says how much to keep and whose clock to use.
type Config struct {
	MaxJobBytes int64 // 0 is wire.MaxJobLogBytes
	Now         func() time.Time
}

// Store is the log storage. It is safe for concurrent use.
type Store struct {
	blobs   *blob.Store
	wakes   publisher
	metrics *obs.Metrics
	log     *slog.Logger
	max     int64
	now     func() time.Time
	buffers sync.Pool
	indexes indexes

	mu   sync.Mutex
	jobs map[Job]*jobLog
}

// New returns a store over blobs. wakes is told of every append (TopicLogs, key is the job id).
func New(blobs *blob.Store, wakes publisher, metrics *obs.Metrics, log *slog.Logger, c Config) *Store {
	if c.MaxJobBytes == 0 {
		c.MaxJobBytes = wire.MaxJobLogBytes
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{
		blobs: blobs, wakes: wakes, metrics: metrics, log: log.With("component", "logs"), max: c.MaxJobBytes, now: c.Now,
		buffers: sync.Pool{New: func() any { b := make([]byte, chunkBytes); return &b }},
		indexes: indexes{by: map[indexKey]*index{}},
		jobs:    map[Job]*jobLog{},
	}
}

// Append stores what r brings of a step's log, whose first byte stands at offset. It returns how far the log is durable:
// bytes below that are skipped, an incomplete last line is left for the next request, and an offset beyond it is
// ErrOffset. The answer is also right beside an error. Requests of one job take turns.
func (s *Store) Append(ctx context.Context, job Job, step int, offset int64, r io.Reader) (wire.LogAck, error) {
	if err := checkName(job, step); err != nil || offset < 0 {
		return wire.LogAck{}, errors.Join(err, ErrName)
	}
	s.metrics.LogChunks.Inc()
	a := appender{store: s, job: job, step: step, next: offset}
	copyErr := a.copy(ctx, r)
	ack, err := a.sync(ctx)
	if copyErr != nil {
		err = copyErr
	}
	if a.stored > 0 {
		s.metrics.LogBytes.WithLabelValues("agent").Add(float64(a.stored))
		s.wakes.Publish(store.TopicLogs, job.JobID)
	}
	return ack, err
}

// Finish closes the files of a job whose log is complete.
func (s *Store) Finish(job Job) {
	s.mu.Lock()
	j := s.jobs[job]
	delete(s.jobs, job)
	s.mu.Unlock()
	if j != nil {
		j.retire()
	}
}

// DeleteRun removes every log of a run.
func (s *Store) DeleteRun(runID string) error {
	if err := checkName(Job{RunID: runID, JobID: "x"}, 0); err != nil {
		return err
	}
	return s.blobs.Delete(path.Join("executions", runID))
}

// Bytes returns how much is stored for an attempt of a job.
func (s *Store) Bytes(job Job) int64 {
	s.mu.Lock()
	j := s.jobs[job]
	s.mu.Unlock()
	if j != nil {
		if total, known := j.size(); known {
			return total
		}
	}
	names, err := s.blobs.List(dirKey(job))
	if err != nil {
		s.log.Warn("list logs", "run_id", job.RunID, "job_id", job.JobID, "err", err)
	}
	total, _ := sum(names)
	return total
}

// Close closes all open files.
func (s *Store) Close() error {
	s.mu.Lock()
	jobs := s.jobs
	s.jobs = map[Job]*jobLog{}
	s.mu.Unlock()
	for _, j := range jobs {
		j.retire()
	}
	return nil
}

// acquire returns the job's log with its turn taken.
func (s *Store) acquire(ctx context.Context, job Job) (*jobLog, error) {
	for {
		j := s.lookup(job)
		select {
		case j.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if j.retired {
			j.release()
			continue
		}
		if !j.loaded {
			j.load()
		}
		return j, nil
	}
}

func (s *Store) lookup(job Job) *jobLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[job]
	if j == nil {
		s.evict()
		j = &jobLog{store: s, job: job, turn: make(chan struct{}, 1), steps: map[int]*stepLog{}}
		s.jobs[job] = j
	}
	j.used = s.now()
	return j
}

// evict closes the job that was used longest ago when too many are open. mu is held.
func (s *Store) evict() {
	if len(s.jobs) < maxOpenJobs {
		return
	}
	var oldest *jobLog
	for _, j := range s.jobs {
		if oldest == nil || j.used.Before(oldest.used) {
			oldest = j
		}
	}
	select {
	case oldest.turn <- struct{}{}:
		oldest.close()
		oldest.release()
		delete(s.jobs, oldest.job)
	default: // at work just now; one more for a while does no harm
	}
}

// sum is what the files of a job's folder say.
func sum(names map[string]int64) (total int64, truncated bool) {
	for name, size := range names {
		if strings.HasSuffix(name, ".log") {
			total += size
		}
		truncated = truncated || name == truncatedName
	}
	return total, truncated
}

const truncatedName = "truncated"

func dirKey(j Job) string {
	return path.Join("executions", j.RunID, j.JobID, strconv.Itoa(j.Attempt))
}

func stepKey(j Job, step int) string { return path.Join(dirKey(j), stepName(step)) }

func stepName(step int) string { return "step-" + strconv.Itoa(step) + ".log" }

func gapName(step int) string { return "step-" + strconv.Itoa(step) + ".gaps" }

// checkName refuses what could name another file than a step log. Ids are made by kici, but come back from agents.
func checkName(j Job, step int) error {
	for _, id := range []string{j.RunID, j.JobID} {
		if id == "" || len(id) > 64 || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
			return fmt.Errorf("%w: id %.80q", ErrName, id)
		}
	}
	if step < 0 || step > maxStep || j.Attempt < 0 {
		return fmt.Errorf("%w: step %d, attempt %d", ErrName, step, j.Attempt)
	}
	return nil
}
