package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

// report is one of the four things that an agent says about its job.
type report struct {
	key    jobKey
	seq    int64 // 0 for ack and reject, which are not acknowledged
	ack    *wire.JobAck
	reject *wire.JobReject
	step   *wire.StepStatus
	job    *wire.JobStatus
}

// Bounds of texts in reports.
const (
	maxStepName  = 512
	maxErrorText = 8 << 10
	maxStepIndex = 10_000
)

// decodeReport returns known=false for other frames.
func decodeReport(frame wire.Frame) (r report, known bool, err error) {
	switch frame.Type {
	case wire.TypeJobAck:
		r.ack = &wire.JobAck{}
		err = json.Unmarshal(frame.Body, r.ack)
		r.key = jobKey{r.ack.JobID, r.ack.Attempt}
	case wire.TypeJobReject:
		r.reject = &wire.JobReject{}
		err = json.Unmarshal(frame.Body, r.reject)
		r.key = jobKey{r.reject.JobID, r.reject.Attempt}
	case wire.TypeStepStatus:
		r.step = &wire.StepStatus{}
		if err = json.Unmarshal(frame.Body, r.step); err == nil {
			err = cleanStep(r.step)
		}
		r.key, r.seq = jobKey{r.step.JobID, r.step.Attempt}, r.step.Seq
	case wire.TypeJobStatus:
		r.job = &wire.JobStatus{}
		if err = json.Unmarshal(frame.Body, r.job); err == nil {
			err = cleanJob(r.job)
		}
		r.key, r.seq = jobKey{r.job.JobID, r.job.Attempt}, r.job.Seq
	default:
		return report{}, false, nil
	}
	if err != nil || r.key.id == "" || len(r.key.id) > 64 || r.seq < 0 {
		return report{}, true, errInvalid
	}
	return r, true, nil
}

func cleanStep(s *wire.StepStatus) error {
	switch ci.StepStatus(s.Status) {
	case ci.StepPending, ci.StepRunning, ci.StepSuccess, ci.StepFailed, ci.StepSkipped, ci.StepCancelled:
	default:
		return errInvalid
	}
	if s.StepIndex < 0 || s.StepIndex > maxStepIndex {
		return errInvalid
	}
	s.Name, s.Error = clean(s.Name, maxStepName), clean(s.Error, maxErrorText)
	return nil
}

func cleanJob(j *wire.JobStatus) error {
	switch ci.JobStatus(j.Status) {
	case ci.JobRunning, ci.JobSuccess, ci.JobFailed, ci.JobCancelled:
	default:
		return errInvalid
	}
	size := 0
	for k, v := range j.Outputs {
		size += len(k) + len(v)
		if k2, v2 := clean(k, len(k)), clean(v, len(v)); k2 != k || v2 != v {
			delete(j.Outputs, k)
			j.Outputs[k2] = v2
		}
	}
	if size > wire.MaxOutputsBytes {
		return fmt.Errorf("outputs exceed %d bytes: %w", wire.MaxOutputsBytes, errInvalid)
	}
	j.Error, j.InitFailure, j.KillMethod = clean(j.Error, maxErrorText), clean(j.InitFailure, 64), clean(j.KillMethod, 32)
	return nil
}

// verdict is what a report came to.
type verdict struct {
	report
	owner   ownership
	applied bool
}

// commitReports writes a batch in one transaction and acknowledges it when that is durable.
func (f *Fleet) commitReports(s *session, batch []report) error {
	logBytes := map[jobKey]int64{}
	for _, r := range batch {
		if r.job != nil && r.job.Status != string(ci.JobRunning) {
			logBytes[r.key] = f.Logs.Bytes(LogPosition{RunID: r.job.RunID, JobID: r.key.id, Attempt: r.key.attempt})
		}
	}
	var verdicts []verdict
	err := f.persist(func(ctx context.Context, tx *store.Tx) error {
		verdicts = verdicts[:0]
		w := reporting{f: f, tx: tx, agent: s.agentID, batch: f.Reports(tx, s.agentID), owners: map[jobKey]ownership{}, logBytes: logBytes}
		for _, r := range batch {
			v, err := w.apply(ctx, r)
			if err != nil {
				return err
			}
			verdicts = append(verdicts, v)
		}
		return w.batch.Flush()
	})
	if err != nil {
		return err
	}
	f.answer(s, verdicts)
	return nil
}

// persist writes, trying a few times when the store is away for a moment.
func (f *Fleet) persist(fn func(context.Context, *store.Tx) error) (err error) {
	for pause := 100 * time.Millisecond; pause < time.Second; pause *= 2 {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		err = f.Store.Write(ctx, func(tx *store.Tx) error { return fn(ctx, tx) })
		cancel()
		if err == nil || errors.Is(err, store.ErrClosed) {
			return err
		}
		time.Sleep(pause)
	}
	return err
}

// ownership says whose a job's attempt is (AG-19).
type ownership int

const (
	ownerUnknown ownership = iota // no such attempt; not a violation
	ownerMine
	ownerEnded // was this agent's and ended by its own report: repeats are harmless
	ownerStale // was this agent's and is not any more (XC-76)
	ownerOther // another agent's: a violation
)

// reporting is the transaction of one batch.
type reporting struct {
	f        *Fleet
	tx       *store.Tx
	agent    string
	batch    ReportBatch
	owners   map[jobKey]ownership
	logBytes map[jobKey]int64
}

// owner is ownerOf for reports that read their job anyway: while that is the agent's and has not ended, so is the assignment.
func (w *reporting) owner(ctx context.Context, r report) (ownership, string, error) {
	if r.ack == nil && r.reject == nil {
		if mine, err := w.batch.Holds(r.key.id, r.key.attempt); err != nil || mine {
			return ownerMine, "", err
		}
	}
	return ownerOf(ctx, w.tx, w.agent, r.key)
}

// apply hands one report to the life of its job, if it comes from the job's agent.
func (w *reporting) apply(ctx context.Context, r report) (v verdict, err error) {
	v.report = r
	owner, known := w.owners[r.key]
	state := ""
	if !known || r.reject != nil {
		if owner, state, err = w.owner(ctx, r); err != nil {
			return v, err
		}
		w.owners[r.key] = owner
	}
	v.owner = owner
	if owner != ownerMine {
		return v, nil
	}
	switch {
	case r.ack != nil:
		var n int64
		n, err = w.tx.FleetAck(ctx, db.FleetAckParams{
			JobID: r.key.id, Attempt: int64(r.key.attempt), AgentID: w.agent, AckedAt: sql.NullInt64{Int64: w.tx.Now(), Valid: true},
		})
		v.applied = n > 0
	case r.reject != nil:
		if state == "assigned" { // a job that it accepted cannot be refused any more
			v.applied, err = w.reject(r)
		}
	case r.step != nil:
		v.applied, err = w.batch.Step(*r.step)
	case r.job.Status == string(ci.JobRunning):
		v.applied, err = w.batch.Started(*r.job)
	default:
		v.applied, err = w.batch.Finish(*r.job, w.logBytes[r.key])
		delete(w.owners, r.key)
	}
	return v, err
}

// reject gives the job back.
func (w *reporting) reject(r report) (applied bool, err error) {
	if err := w.batch.Flush(); err != nil {
		return false, err
	}
	delete(w.owners, r.key)
	return w.f.Losses.Requeue(w.tx, r.key.id, r.key.attempt, "rejected: "+clean(r.reject.Reason, 32), r.reject.Reason != "draining")
}

// answer acknowledges what is durable: one frame for each job.
func (f *Fleet) answer(s *session, verdicts []verdict) {
	acks := map[jobKey]*wire.ReportAck{}
	for _, v := range verdicts {
		s.progress(v)
		gone := v.owner == ownerStale || v.owner == ownerOther || v.owner == ownerUnknown
		if v.seq == 0 && !gone {
			continue
		}
		a := acks[v.key]
		if a == nil {
			a = &wire.ReportAck{JobID: v.key.id, Attempt: v.key.attempt}
			acks[v.key] = a
		}
		a.Seq, a.Gone = max(a.Seq, v.seq), a.Gone || gone
		if v.owner == ownerOther {
			s.violation(v.key)
		}
	}
	for _, a := range acks {
		s.send(wire.TypeReportAck, a)
	}
}

// progress notes what the session has to know about its job and counts what ended.
func (s *session) progress(v verdict) {
	if v.step != nil && v.applied && ci.StepStatus(v.step.Status).Terminal() {
		s.f.Metrics.Steps.WithLabelValues(v.step.Status).Inc()
	}
	final := v.job != nil && v.job.Status != string(ci.JobRunning)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.key != v.key {
		return
	}
	switch {
	case v.owner != ownerMine, final, v.reject != nil && v.applied:
		pos := LogPosition{RunID: s.current.runID, JobID: v.key.id, Attempt: v.key.attempt}
		s.current = nil
		s.f.wg.Go(func() { s.f.Logs.Finish(pos) })
	case v.ack != nil, v.job != nil, v.step != nil:
		s.current.acked = true
	}
}

// violation counts reports and questions about other agents' jobs; five in a minute end the connection (AG-19).
func (s *session) violation(key jobKey) {
	now := s.f.Env.NowMs()
	s.mu.Lock()
	recent := s.violations[:0]
	for _, at := range s.violations {
		if now-at < time.Minute.Milliseconds() {
			recent = append(recent, at)
		}
	}
	s.violations = append(recent, now)
	many := len(s.violations) >= 5
	s.mu.Unlock()
	s.f.Log.Warn("report about another agent's job", "agent_id", s.agentID, "job_id", key.id, "attempt", key.attempt)
	if many {
		s.close(ending{wire.CloseInvalid, "reports about jobs of other agents", "invalid"})
	}
}
