package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

// EventEmitter emits an event for a running job (EVT-1). A repeat of a RequestID returns the first one's id. A refusal is a
// *Refused; any other error means that it is not known, and the agent asks again.
type EventEmitter interface {
	EmitFromJob(ctx context.Context, e StepEvent) (id string, err error)
}

// JobAdder adds jobs to the run of a running job, with the rules of EventEmitter. Names are those of the jobs that it made.
type JobAdder interface {
	AddJobs(ctx context.Context, j StepJobs) (names []string, err error)
}

// StepEvent is an event that a step asks for. Where it comes from is found by the job, never told by the agent (EVT-3).
type StepEvent struct {
	AgentID, JobID string
	Attempt        int
	RequestID      string
	Name           string
	Payload        json.RawMessage // valid JSON; {} when the step gave none
	TargetRepos    []string
}

// StepJobs is the text of jobs that a step adds: YAML with a jobs: map.
type StepJobs struct {
	AgentID, JobID string
	Attempt        int
	RequestID      string
	Text           string
}

// Refused is a request of a step that is refused for good, or until RetryAfterMs have passed. Message is for the step's author.
type Refused struct {
	Code, Message string
	RetryAfterMs  int64
}

func (r *Refused) Error() string { return r.Code + ": " + r.Message }

func refused(code, format string, args ...any) *Refused {
	return &Refused{Code: code, Message: fmt.Sprintf(format, args...)}
}

const (
	maxAsks    = 32 // questions of one session that wait; an agent sends fewer
	askWithin  = 10 * time.Second
	askAgainMs = 1000
)

// ask is a question of a step on its way.
type ask struct {
	answer string // type of the answer
	id     string
	key    jobKey
	emit   *wire.EventEmit
	jobs   *wire.JobAdd
}

// decodeAsk returns known=false for other frames.
func decodeAsk(frame wire.Frame) (a ask, known bool, err error) {
	switch frame.Type {
	case wire.TypeEventEmit:
		a.emit, a.answer = &wire.EventEmit{}, wire.TypeEventEmitResult
		err = json.Unmarshal(frame.Body, a.emit)
		a.id, a.key = a.emit.RequestID, jobKey{a.emit.JobID, a.emit.Attempt}
	case wire.TypeJobAdd:
		a.jobs, a.answer = &wire.JobAdd{}, wire.TypeJobAddResult
		err = json.Unmarshal(frame.Body, a.jobs)
		a.id, a.key = a.jobs.RequestID, jobKey{a.jobs.JobID, a.jobs.Attempt}
	default:
		return ask{}, false, nil
	}
	if err != nil || a.id == "" || len(a.id) > wire.MaxRequestIDBytes || !utf8.ValidString(a.id) || a.key.id == "" || len(a.key.id) > 64 || a.key.attempt < 1 {
		return ask{}, true, errInvalid
	}
	return a, true, nil
}

// check finds what is beyond the bounds of wire. The agent has looked already; this one does not trust it.
func (a ask) check() *Refused {
	switch {
	case a.emit != nil && a.emit.Name == "":
		return refused(wire.StepInvalid, "an event needs a name")
	case a.emit != nil && len(a.emit.Name) > wire.MaxEventNameBytes:
		return refused(wire.StepTooLarge, "the name of an event has at most %d bytes", wire.MaxEventNameBytes)
	case a.emit != nil && len(a.emit.Payload) > wire.MaxEventPayloadBytes:
		return refused(wire.StepTooLarge, "the payload of an event has at most %d bytes", wire.MaxEventPayloadBytes)
	case a.emit != nil && len(a.emit.TargetRepos) > wire.MaxTargetRepos:
		return refused(wire.StepTooLarge, "an event can name at most %d repositories", wire.MaxTargetRepos)
	case a.jobs != nil && len(a.jobs.Jobs) > wire.MaxJobAddBytes:
		return refused(wire.StepTooLarge, "at most %d bytes of jobs can be added at once", wire.MaxJobAddBytes)
	}
	return nil
}

// takeAsk queues a question. They are answered one after the other, by a goroutine that exists only while there are some.
func (s *session) takeAsk(a ask) {
	s.mu.Lock()
	full := len(s.asks) >= maxAsks
	if !full {
		s.asks = append(s.asks, a)
		if !s.asking {
			s.asking = true
			s.f.wg.Go(s.answerAsks)
		}
	}
	s.mu.Unlock()
	if full {
		s.tell(a, wire.StepResult{}, &Refused{
			Code: wire.StepUnavailable, Message: "too many questions of this agent wait for an answer", RetryAfterMs: askAgainMs,
		})
	}
}

func (s *session) answerAsks() {
	for {
		s.mu.Lock()
		if len(s.asks) == 0 || s.end != nil {
			s.asks, s.asking = nil, false
			s.mu.Unlock()
			return
		}
		a := s.asks[0]
		s.asks = s.asks[1:]
		s.mu.Unlock()
		s.settle() // what the agent reported before it asked is known: that the job runs, above all
		ctx, cancel := context.WithTimeout(context.Background(), askWithin)
		res, err := s.f.answerAsk(ctx, s, a)
		cancel()
		s.tell(a, res, err)
	}
}

// answerAsk hands the question to the room that it is for, if the agent may ask it (EVT-3): the attempt is its own and has not
// ended. That room looks again, in the transaction of what it does.
func (f *Fleet) answerAsk(ctx context.Context, s *session, a ask) (res wire.StepResult, err error) {
	owner, _, err := ownerOf(ctx, f.Store.Read(), s.agentID, a.key)
	switch {
	case err != nil: // unanswerable is not a permission
		return res, err
	case owner == ownerOther:
		s.violation(a.key)
		return res, refused(wire.StepNotYours, "the agent does not hold this job")
	case owner == ownerUnknown:
		return res, refused(wire.StepNotYours, "the agent does not hold this job")
	case owner != ownerMine:
		return res, refused(wire.StepEnded, "the job has ended, or was taken from this agent")
	}
	if bad := a.check(); bad != nil {
		return res, bad
	}
	if a.emit != nil {
		payload := a.emit.Payload
		if len(payload) == 0 || string(payload) == "null" {
			payload = json.RawMessage("{}")
		}
		res.ID, err = f.Events.EmitFromJob(ctx, StepEvent{
			AgentID: s.agentID, JobID: a.key.id, Attempt: a.key.attempt, RequestID: a.id, Name: a.emit.Name, Payload: payload, TargetRepos: a.emit.TargetRepos,
		})
		return res, err
	}
	res.Names, err = f.Jobs.AddJobs(ctx, StepJobs{
		AgentID: s.agentID, JobID: a.key.id, Attempt: a.key.attempt, RequestID: a.id, Text: a.jobs.Jobs,
	})
	return res, err
}

// tell answers a question.
func (s *session) tell(a ask, res wire.StepResult, err error) {
	if err != nil {
		res = wire.StepResult{}
		if no, ok := errors.AsType[*Refused](err); ok {
			res.Code, res.Message, res.RetryAfterMs = no.Code, clip(no.Message, maxErrorText), no.RetryAfterMs
		} else {
			s.f.Log.Error("answer a step", "agent_id", s.agentID, "job_id", a.key.id, "answer", a.answer, "err", err)
			res.Code, res.Message, res.RetryAfterMs = wire.StepUnavailable, "the orchestrator cannot answer now", askAgainMs
		}
	}
	res.RequestID, res.JobID = a.id, a.key.id
	s.send(a.answer, res)
}

// assignments reads whose an attempt is.
type assignments interface {
	FleetAssignment(ctx context.Context, jobID string, attempt int64) (db.FleetAssignmentRow, error)
}

// ownerOf says whose an attempt is, and the state of its assignment if it is this agent's.
func ownerOf(ctx context.Context, q assignments, agentID string, key jobKey) (ownership, string, error) {
	a, err := q.FleetAssignment(ctx, key.id, int64(key.attempt))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ownerUnknown, "", nil
	case err != nil:
		return ownerUnknown, "", fmt.Errorf("read assignment: %w", err)
	case a.AgentID != agentID:
		return ownerOther, "", nil
	case !a.EndedAt.Valid:
		return ownerMine, a.State, nil
	case a.EndReason == "finished":
		return ownerEnded, "", nil
	}
	return ownerStale, "", nil
}
