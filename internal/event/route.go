package event

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
)

// Reasons of dead letters (EVT-13).
const (
	DeadExhausted    = "exhausted_retries"
	DeadNotRetryable = "non_retryable"
)

// errLost says that the lease is another's by now: nothing may be written (EVT-12).
var errLost = errors.New("the event's lease was lost")

// permanent marks an error that no repetition mends: an event that meets nothing else is a dead letter at once (EVT-13).
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// retryDelay is full jitter: a time of [0, min(5 min, 5 s · 2^(attempts−1))) (EVT-13). It is drawn from the event's id and attempt, so
// that deciding it twice gives the same.
func retryDelay(id string, attempts int64) time.Duration {
	most := 5 * time.Minute
	if attempts < 7 {
		most = min(most, 5*time.Second<<max(attempts-1, 0))
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", id, attempts)
	x := h.Sum64() // FNV's low bits are poor for inputs that differ in their end
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Duration(x % uint64(most))
}

// handle routes one leased event and writes down how that ended. work ends before the lease does, run with the router.
func (s *Service) handle(work, run context.Context, e db.KiciEvent) {
	err := s.route(work, e)
	switch {
	case err == nil:
	case errors.Is(err, errLost):
		s.log.Warn("event was taken by another server", "event_id", e.ID, "event_name", e.EventName)
	case run.Err() != nil:
		s.giveBack(run, e)
	default:
		if ferr := s.commit(context.WithoutCancel(work), e, nil, s.failure(e, err)); ferr != nil && !errors.Is(ferr, errLost) {
			s.log.Error("write down a failed attempt; the lease runs out by itself", "event_id", e.ID, "err", ferr)
		}
	}
}

// route decides about a leased event, plans what it starts and writes it down. An error means that nothing about the attempt is
// written. It contains panics, so that one event cannot stop the others.
func (s *Service) route(ctx context.Context, e db.KiciEvent) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("event routing panic", "event_id", e.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	f, done, err := s.gather(ctx, e)
	if err != nil {
		return err
	}
	v := decide(f)
	var writes []write
	var failures []error
	for _, reg := range v.unread {
		failures = append(failures, permanent{fmt.Errorf("%s of %s: this version of kici cannot read the registered workflow; push to its default branch, or run `kici registration refresh`",
			reg.Workflow, reg.Repo)})
	}
	for _, t := range v.targets {
		if done[t.reg.ID] { // an earlier attempt started it (EVT-17)
			continue
		}
		p, err := s.plan(ctx, f, t)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s of %s: %w", t.reg.Workflow, t.reg.Repo, err))
			continue
		}
		writes = append(writes, write{registration: t.reg.ID, run: p, name: t.reg.Workflow + " of " + t.reg.Repo})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.settle(ctx, e, v, writes, failures)
}

// settle writes the targets and the attempt's end in one transaction. When that fails, each target gets one of its own, so that what
// stands against one does not stop the others (EVT-18).
func (s *Service) settle(ctx context.Context, e db.KiciEvent, v verdict, writes []write, failures []error) error {
	end := func() ending {
		if len(failures) > 0 {
			return s.failure(e, failures...)
		}
		return ending{outcome: v.outcome}
	}
	first := end()
	first.buffers = v.buffers
	err := s.commit(ctx, e, writes, first)
	if err == nil || errors.Is(err, errLost) || ctx.Err() != nil || len(writes) == 0 {
		return err
	}
	for _, w := range writes {
		switch err := s.commit(ctx, e, []write{w}, ending{open: true}); {
		case errors.Is(err, errLost) || ctx.Err() != nil:
			return err
		case err != nil:
			failures = append(failures, fmt.Errorf("%s: %w", w.name, err))
		}
	}
	last := end()
	last.buffers = v.buffers
	return s.commit(ctx, e, nil, last)
}

// write is a run to be written with its claim.
type write struct {
	registration string
	name         string
	run          Planned
}

// ending is how an attempt ends.
type ending struct {
	open    bool   // it does not yet
	outcome string // of success
	buffers []buffer
	err     string // of a failure
	retryAt int64  // UTC ms after the transaction's instant; 0 with dead
	dead    string // reason, "" when it is tried again
}

// failure is the end of an attempt that errs stopped. As long as one of them may go away, the event is tried again: what can be started
// must not be kept from it by a target that never can (EVT-18).
func (s *Service) failure(e db.KiciEvent, errs ...error) ending {
	end := ending{err: clip(errors.Join(errs...).Error(), maxErrorBytes-4)}
	passing := slices.ContainsFunc(errs, func(err error) bool { return !errors.As(err, new(permanent)) })
	switch {
	case !passing:
		end.dead = DeadNotRetryable
	case e.Attempts >= s.d.Limits().MaxAttempts:
		end.dead = DeadExhausted
	default:
		end.retryAt = retryDelay(e.ID, e.Attempts).Milliseconds()
	}
	return end
}

// commit writes runs, their claims and the end of the attempt, all or nothing, and nothing when the lease is lost.
func (s *Service) commit(ctx context.Context, e db.KiciEvent, writes []write, end ending) error {
	var dispatched int64
	outcome := end.outcome
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		buffered, err := tx.HoldEvent(ctx, e.ID, s.d.InstanceID, e.Attempts)
		if errors.Is(err, sql.ErrNoRows) {
			return errLost
		} else if err != nil {
			return err
		}
		gone := false
		for _, w := range writes {
			live, err := s.writeTarget(ctx, tx, e, w)
			if err != nil {
				return err
			}
			gone = gone || !live
		}
		if len(end.buffers) > 0 && !buffered {
			if err := s.addFailures(ctx, tx, e, end.buffers); err != nil {
				return err
			}
		}
		if end.open {
			return nil
		}
		if dispatched, err = tx.CountEventTargets(ctx, e.ID); err != nil {
			return err
		}
		outcome = end.outcome
		switch {
		case dispatched > 0:
			outcome = OutcomeMatched
		case outcome == OutcomeMatched && gone: // its registrations went while it was leased (XC-29)
			outcome = OutcomeNoRegistration
			if len(end.buffers) > 0 {
				outcome = OutcomeBuffered
			}
		}
		return s.endAttempt(ctx, tx, e, end, outcome, dispatched)
	})
	if err == nil && !end.open {
		s.report(e, end, outcome, dispatched)
	}
	return err
}

// writeTarget writes one run and its claim. It is false when the registration is gone or off by now.
func (s *Service) writeTarget(ctx context.Context, tx *store.Tx, e db.KiciEvent, w write) (live bool, err error) {
	n, err := tx.RegistrationLive(ctx, w.registration)
	if err != nil || n == 0 {
		return false, err
	}
	id, _, err := w.run.Insert(ctx, tx)
	if err != nil {
		return true, fmt.Errorf("write run: %w", err)
	}
	_, err = tx.InsertEventRun(ctx, e.ID, w.registration, id)
	return true, err
}

func (s *Service) endAttempt(ctx context.Context, tx *store.Tx, e db.KiciEvent, end ending, outcome string, dispatched int64) error {
	var n int64
	var err error
	if end.err == "" {
		n, err = tx.FinishEvent(ctx, db.FinishEventParams{
			ProcessedAt: nullInt(tx.Now()), MatchOutcome: nullText(outcome), MatchedCount: nullInt(dispatched), ID: e.ID,
			ClaimedBy: s.d.InstanceID, Attempt: e.Attempts,
		})
	} else {
		p := db.FailEventParams{LastError: end.err, ID: e.ID, ClaimedBy: s.d.InstanceID, Attempt: e.Attempts, MatchedCount: nullInt(dispatched)}
		if end.dead != "" {
			p.DlqAt, p.DlqReason = nullInt(tx.Now()), end.dead
		} else {
			p.NextRetryAt = nullInt(tx.Now() + end.retryAt)
		}
		n, err = tx.FailEvent(ctx, p)
	}
	if err == nil && n == 0 {
		return errLost
	}
	return err
}

// report counts and logs the end of an attempt (OBS-20).
func (s *Service) report(e db.KiciEvent, end ending, outcome string, dispatched int64) {
	m := &s.d.Metrics.Events
	label := m.Label(e.EventName)
	log := s.log.With("event_id", e.ID, "event_name", e.EventName, "attempt", e.Attempts)
	switch {
	case end.err == "":
		s.ended(e.EventName, outcome, 1, e.Attempts)
		log.Debug("event routed", "outcome", outcome, "runs", dispatched)
	case end.dead != "":
		s.dead(e.EventName, end.dead, e.Attempts)
		log.Error("event is a dead letter", "reason", end.dead, "err", end.err, "remedy", "mend the cause, then run: kici event dlq retry "+e.ID)
	default:
		m.Retries.WithLabelValues(label).Inc()
		log.Warn("event will be routed again", "delay_ms", end.retryAt, "err", end.err)
	}
}

func (s *Service) dead(name, reason string, attempts int64) {
	m := &s.d.Metrics.Events
	label := m.Label(name)
	m.Dead.WithLabelValues(label, reason).Inc()
	m.Attempts.WithLabelValues(label, "dead_letter").Observe(float64(attempts))
}

// plan plans the run of one target.
func (s *Service) plan(ctx context.Context, f facts, t target) (Planned, error) {
	inputs, err := scheduleInputs(f.event, t)
	if err != nil {
		return nil, permanent{fmt.Errorf("the inputs of its schedule: %w", err)}
	}
	trigger := t.event.Type
	if t.event.Action != "" {
		trigger += ":" + t.event.Action
	}
	return s.d.Plan(ctx, Start{
		OrgID: f.event.OrgID, Registration: t.reg, Workflow: *t.workflow, Event: t.event, Decision: t.decision, DedupKey: f.event.ID + ":" + t.reg.ID,
		TrustTier: f.origin.tier, ChainDepth: int(f.event.ChainDepth), Actor: f.origin.actor, TriggerEvent: trigger, Branch: t.branch,
		Inputs: inputs,
	})
}

// scheduleInputs are what a fire gives the run: the inputs of the trigger that it matched, each its default (WF-9). One without is an
// error, and only another registration mends it.
func scheduleInputs(e db.KiciEvent, t target) (map[string]any, error) {
	if e.EventName != ScheduleFire {
		return nil, nil
	}
	return workflow.ScheduleInputs(&t.workflow.On[t.decision.Trigger])
}

// gather reads what the decision rests on, and the registrations that earlier attempts have dispatched to.
func (s *Service) gather(ctx context.Context, e db.KiciEvent) (f facts, done map[string]bool, err error) {
	index, err := s.d.Index(ctx)
	if err != nil {
		return f, nil, fmt.Errorf("read registrations: %w", err)
	}
	err = s.d.Store.Snapshot(ctx, func(tx *store.Tx) error {
		f, done, err = s.gatherIn(ctx, tx, index, e)
		return err
	})
	if err != nil {
		return f, nil, fmt.Errorf("read what the event rests on: %w", err)
	}
	return f, done, nil
}

func (s *Service) gatherIn(ctx context.Context, tx *store.Tx, index Index, e db.KiciEvent) (f facts, done map[string]bool, err error) {
	f = facts{event: e, candidates: candidatesOf(index, e)}
	if e.Attempts > 1 || e.NextRetryAt.Valid { // the first attempt finds nothing
		rows, err := tx.EventTargets(ctx, e.ID)
		if err != nil {
			return f, nil, err
		}
		done = map[string]bool{}
		for _, r := range rows {
			done[r.RegistrationID] = true
		}
	}
	if len(f.candidates) == 0 {
		return f, done, nil
	}
	if needsTrust(f) {
		if f.trust, err = tx.TrustBySource(ctx, e.OrgID, e.SourceRoutingKey, e.SourceRepo); err != nil {
			return f, nil, err
		}
	}
	f.origin, err = originOf(ctx, tx, e)
	return f, done, err
}

// needsTrust reports whether some candidate is another source's.
func needsTrust(f facts) bool {
	for _, c := range f.candidates {
		if !trusted(f.event, c.reg, nil) {
			return true
		}
	}
	return false
}

// candidatesOf are the registrations with a trigger of a fitting type, each once.
func candidatesOf(index Index, e db.KiciEvent) []candidate {
	var out []candidate
	seen := map[string]bool{}
	for _, kind := range triggerTypes(e.EventName) {
		for reg, w := range index.Triggered(e.OrgID, kind) {
			if !seen[reg.ID] {
				seen[reg.ID] = true
				out = append(out, candidate{reg, w})
			}
		}
	}
	return out
}

// originOf reads what the emitting run hands on. What cannot be read is untrusted (EVT-23).
func originOf(ctx context.Context, tx *store.Tx, e db.KiciEvent) (origin, error) {
	switch {
	case e.EventName == FailedBatch:
		tier, err := batchTier(ctx, tx, e.Payload)
		return origin{tier: tier, actor: e.Actor}, err
	case minted(e), e.SourceRunID == "" && e.Emitter != EmitterStep:
		return origin{tier: ci.TierTrusted, actor: e.Actor}, nil
	}
	row, err := tx.RunOrigin(ctx, e.SourceRunID)
	if errors.Is(err, sql.ErrNoRows) {
		return origin{tier: ci.TierUnknown}, nil
	} else if err != nil {
		return origin{}, err
	}
	o := origin{tier: ci.TrustTier(row.TrustTier), branch: row.Branch, actor: row.Actor}
	if e.EventName == WorkflowComplete && statusOf(json.RawMessage(e.Payload)) == string(ci.RunFailed) {
		o.byFailures = startedByFailures([]byte(row.Event))
	}
	return o, nil
}

func registryVersion(ctx context.Context, tx *store.Tx) (int64, error) {
	v, err := tx.RegistryVersion(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return v, err
}
