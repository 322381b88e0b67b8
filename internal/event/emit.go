package event

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Who emits.
const (
	EmitterOrchestrator = "orchestrator"
	EmitterStep         = "step"
	EmitterOperator     = "operator"
)

// Codes of refusals, which are also labels of metrics.
const (
	CodeName     = "invalid_name"
	CodeReserved = "reserved_name"
	CodePayload  = "invalid_payload"
	CodeTarget   = "invalid_target"
	CodeOwner    = "not_the_owner"
	CodeDepth    = "chain_depth"
	CodeRate     = "rate_limit"
)

// Refused says why an event was not emitted. Nothing was written.
type Refused struct {
	Code         string
	Message      string // a sentence for people
	RetryAfterMs int64  // > 0: it may be emitted then (EVT-6)
}

func (r *Refused) Error() string { return r.Message }

// Emit is an event to be written.
type Emit struct {
	OrgID, Name      string
	Payload          json.RawMessage // an object; nil is {}
	SourceRepo       string          // whose it is, "" for none
	SourceRoutingKey string
	SourceRunID      string
	SourceJobID      string
	TargetRepos      []string // only registrations of these repositories; none is no restriction (EVT-4)
	RegistrationID   string   // the only addressee (EVT-20), "" for none
	ChainDepth       int      // of the event: that of the run that causes it + 1, 0 for a root event (EVT-5)
	Emitter          string   // "" is the orchestrator
	Actor            string   // the person who emits it, "" for none
	RequestKey       string   // a repeat under the same (SourceJobID, RequestKey) returns the first event; "" never repeats
}

// EmitTx writes an event in the caller's transaction, together with its notification (EVT-7), and returns its id. It checks nothing but
// the chain's depth: an event as deep as the limit is a *Refused and leaves nothing behind (EVT-5, XC-40).
func (s *Service) EmitTx(tx *store.Tx, e Emit) (id string, err error) {
	ctx, limits := context.Background(), s.d.Limits()
	if err := s.checkDepth(e.Name, int64(e.ChainDepth)); err != nil {
		return "", err
	}
	if e.RequestKey != "" {
		first, err := tx.EventByRequest(ctx, e.SourceJobID, nullText(e.RequestKey))
		if err == nil || !errors.Is(err, sql.ErrNoRows) {
			return first, err
		}
	}
	if e.Emitter == "" {
		e.Emitter = EmitterOrchestrator
	}
	if len(e.Payload) == 0 {
		e.Payload = json.RawMessage("{}")
	}
	targets, err := json.Marshal(append([]string{}, e.TargetRepos...))
	if err != nil {
		return "", fmt.Errorf("encode targets: %w", err)
	}
	id = s.d.Env.NewID()
	err = tx.InsertEvent(ctx, db.InsertEventParams{
		ID: id, OrgID: e.OrgID, EventName: e.Name, Payload: string(e.Payload), SourceRepo: e.SourceRepo, SourceRoutingKey: e.SourceRoutingKey,
		SourceRunID: e.SourceRunID, SourceJobID: e.SourceJobID, TargetRepos: string(targets), ChainDepth: int64(e.ChainDepth),
		CreatedAt: tx.Now(), ExpiresAt: tx.Now() + limits.TTL.Milliseconds(), Emitter: e.Emitter, RegistrationID: e.RegistrationID,
		Actor: clip(e.Actor, maxActorBytes), RequestKey: nullText(e.RequestKey),
	})
	if err != nil {
		return "", fmt.Errorf("write event: %w", err)
	}
	tx.Notify(store.TopicEvents, "")
	return id, nil
}

func (s *Service) checkDepth(name string, depth int64) error {
	limit := s.d.Limits().MaxChainDepth
	if depth < limit {
		return nil
	}
	return s.refuse(name, &Refused{Code: CodeDepth, Message: fmt.Sprintf(
		"event %q is refused: it would be the %d. link of a chain of workflows that start each other, and a chain may have %d; workflows that trigger each other in a circle are the usual cause",
		name, depth, limit-1)})
}

// refuse counts and logs a refusal and returns it (OBS-20).
func (s *Service) refuse(name string, r *Refused) error {
	s.d.Metrics.Events.Refused.WithLabelValues(r.Code).Inc()
	s.log.Warn("event refused", "event_name", clip(name, MaxNameBytes), "code", r.Code, "reason", r.Message)
	return r
}

// FromJob is an event that a running step wants to emit.
type FromJob struct {
	AgentID, JobID string
	Attempt        int
	RequestID      string // a repeat returns the first id; "" never repeats
	Name           string
	Payload        json.RawMessage
	TargetRepos    []string
}

// EmitFromJob emits an event for a job that the agent holds (EVT-3). Where the event comes from is taken from our own rows, read in
// the transaction that writes it. Refusals are *Refused; any other error says nothing about the event and may be tried again.
func (s *Service) EmitFromJob(ctx context.Context, f FromJob) (id string, err error) {
	payload, err := s.check(f.Name, f.Payload, f.TargetRepos)
	if err != nil {
		return "", err
	}
	job, err := s.d.Store.Read().EmittingJob(ctx, f.JobID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("look up the emitting job: %w", err)
	}
	if f.RequestID != "" {
		first, err := s.d.Store.Read().EventByRequest(ctx, f.JobID, nullText(f.RequestID))
		if err == nil || !errors.Is(err, sql.ErrNoRows) {
			return first, err
		}
	}
	if err := s.owns(f, job); err != nil {
		return "", err
	}
	return s.limited(job.RoutingKey, f.Name, func() error {
		return s.d.Store.Write(ctx, func(tx *store.Tx) error {
			job, err := tx.EmittingJob(ctx, f.JobID)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if err := s.owns(f, job); err != nil {
				return err
			}
			id, err = s.EmitTx(tx, Emit{
				OrgID: job.OrgID, Name: f.Name, Payload: payload, SourceRepo: job.Repo, SourceRoutingKey: job.RoutingKey, SourceRunID: job.RunID,
				SourceJobID: f.JobID, TargetRepos: f.TargetRepos, ChainDepth: int(job.ChainDepth) + 1, Emitter: EmitterStep, RequestKey: f.RequestID,
			})
			return err
		})
	}, &id)
}

// owns refuses an agent that does not hold this attempt of the job, or whose job has ended (XC-43).
func (s *Service) owns(f FromJob, job db.EmittingJobRow) error {
	if f.AgentID != "" && job.ID == f.JobID && job.AgentID.Valid && job.AgentID.String == f.AgentID && job.Attempt == int64(f.Attempt) && !job.FinishedAt.Valid {
		return nil
	}
	return s.refuse(f.Name, &Refused{Code: CodeOwner, Message: "the event is refused: this agent does not hold the job for which it was to be emitted, or the job has ended"})
}

// FromOperator is an event that a person emits by the API or the command line.
type FromOperator struct {
	OrgID       string
	Name        string
	Payload     json.RawMessage
	TargetRepos []string
	RoutingKey  string // under whose name; "" is the organisation's own, which only those may use who see all of it
	Repo        string // of that source
	Actor       string // who it was
	RequestID   string // Idempotency-Key; "" never repeats
}

// EmitFromOperator emits a root event.
func (s *Service) EmitFromOperator(ctx context.Context, f FromOperator) (id string, err error) {
	payload, err := s.check(f.Name, f.Payload, f.TargetRepos)
	if err != nil {
		return "", err
	}
	e := Emit{
		OrgID: f.OrgID, Name: f.Name, Payload: payload, SourceRepo: f.Repo, SourceRoutingKey: f.RoutingKey, TargetRepos: f.TargetRepos,
		Emitter: EmitterOperator, Actor: f.Actor,
	}
	if f.RequestID != "" {
		e.RequestKey = "operator:" + f.OrgID + ":" + f.RequestID
		first, err := s.d.Store.Read().EventByRequest(ctx, "", nullText(e.RequestKey))
		if err == nil || !errors.Is(err, sql.ErrNoRows) {
			return first, err
		}
	}
	id, err = s.limited(f.OrgID+"/"+f.RoutingKey, f.Name, func() error {
		return s.d.Store.Write(ctx, func(tx *store.Tx) error {
			id, err = s.EmitTx(tx, e)
			return err
		})
	}, &id)
	if err == nil {
		s.log.Info("event emitted by hand", "event_id", id, "event_name", f.Name, "actor", f.Actor)
	}
	return id, err
}

// check refuses what no emitter but the orchestrator may emit, and returns the payload as it is stored.
func (s *Service) check(name string, payload json.RawMessage, targets []string) (json.RawMessage, error) {
	var refused *Refused
	if err := CheckName(name); errors.As(err, &refused) {
		return nil, s.refuse(name, refused)
	}
	if refused = checkTargets(targets); refused != nil {
		return nil, s.refuse(name, refused)
	}
	out, refused := checkPayload(payload)
	if refused != nil {
		return nil, s.refuse(name, refused)
	}
	return out, nil
}

func checkTargets(targets []string) *Refused {
	if len(targets) > MaxTargets {
		return &Refused{Code: CodeTarget, Message: fmt.Sprintf("the event names %d target repositories; %d are the most", len(targets), MaxTargets)}
	}
	for _, t := range targets {
		if t == "" || len(t) > maxTargetBytes {
			return &Refused{Code: CodeTarget, Message: fmt.Sprintf("a target repository is its name, of 1 to %d bytes, such as acme/shop", maxTargetBytes)}
		}
	}
	return nil
}

// checkPayload returns a JSON object in its shortest form.
func checkPayload(payload json.RawMessage) (json.RawMessage, *Refused) {
	if len(bytes.TrimSpace(payload)) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(payload) > 4*MaxPayloadBytes { // not even looked at
		return nil, tooLarge()
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(payload, &object); err != nil || object == nil {
		return nil, &Refused{Code: CodePayload, Message: `the payload must be a JSON object, such as {"version": "1.2"}`}
	}
	var out bytes.Buffer
	if err := json.Compact(&out, payload); err != nil {
		return nil, &Refused{Code: CodePayload, Message: "the payload is not JSON: " + err.Error()}
	}
	if out.Len() > MaxPayloadBytes {
		return nil, tooLarge()
	}
	return bytes.ToValidUTF8(out.Bytes(), []byte("\ufffd")), nil
}

func tooLarge() *Refused {
	return &Refused{Code: CodePayload, Message: fmt.Sprintf("the payload is larger than %d KiB; put large data into a file or an artifact and emit where it is", MaxPayloadBytes>>10)}
}

// limited emits within the rate of EVT-6; what is not emitted does not count.
func (s *Service) limited(key, name string, emit func() error, id *string) (string, error) {
	now := s.d.Env.NowMs()
	if wait := s.rate.take(key, name, s.d.Limits().RatePerMinute, now); wait > 0 {
		return "", s.refuse(name, &Refused{Code: CodeRate, RetryAfterMs: wait.Milliseconds(), Message: fmt.Sprintf(
			"event %q is refused: too many events in the last minute; try again in %d ms", name, wait.Milliseconds())})
	}
	if err := emit(); err != nil {
		s.rate.give(key, name, now)
		return "", err
	}
	return *id, nil
}

// clip cuts text at about n bytes, at a rune's border.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

func nullText(v string) sql.NullString { return sql.NullString{String: v, Valid: v != ""} }

func nullInt(v int64) sql.NullInt64 { return sql.NullInt64{Int64: v, Valid: true} }

func printable(c rune) bool { return unicode.IsPrint(c) }
