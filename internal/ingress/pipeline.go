package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
)

// decide reads whatever is needed and plans everything that the delivery leads to; it writes nothing. An error means that the
// delivery is to be tried again.
func (s *Service) decide(ctx context.Context, d *db.Delivery) (outcome, error) {
	e, err := s.byRoutingKey(ctx, d.OrgID, d.RoutingKey)
	if errors.Is(err, ErrNotFound) {
		return outcome{status: statusSkipped, err: "its source does not exist any more"}, nil
	} else if err != nil {
		return outcome{}, s.failed("resolve", err)
	}
	src, err := e.usable()
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDisabled) { // XC-13
		return outcome{status: statusSkipped, err: err.Error()}, nil
	} else if err != nil {
		return outcome{status: statusFailed, err: err.Error()}, s.count("resolve")
	}
	ev, err := s.normalize(ctx, src, *d)
	switch {
	case errors.Is(err, source.ErrIgnored):
		return outcome{status: statusSkipped, event: ev, err: err.Error()}, nil
	case errors.Is(err, source.ErrInvalid):
		return outcome{status: statusFailed, event: ev, err: err.Error()}, s.count("normalize")
	case err != nil:
		return outcome{}, s.failed("normalize", err)
	}
	if src.HasRepo() {
		return s.decideRepo(ctx, d, src, ev)
	}
	return s.decideRegistered(ctx, d, src, ev)
}

// failed counts a phase's failure and passes the error on; count does so where the delivery does not come back.
func (s *Service) failed(phase string, err error) error {
	_ = s.count(phase)
	return fmt.Errorf("%s: %w", phase, err)
}

func (s *Service) count(phase string) error {
	s.d.Metrics.PipelineFailures.WithLabelValues(phase).Inc()
	return nil
}

func (s *Service) normalize(ctx context.Context, src source.Source, d db.Delivery) (ci.Event, error) {
	ev, err := src.Normalize(ctx, source.Delivery{ID: d.DeliveryID, Event: d.Event, Action: d.Action, Headers: headersOf(d), Body: d.Body})
	ev.Payload = bytes.ToValidUTF8(ev.Payload, []byte("\ufffd")) // PostgreSQL refuses anything else
	if err == nil {
		err = source.CheckPayload(ev.Payload)
	}
	return ev, err
}

// decideRepo starts the workflows of the commit that the event is about.
func (s *Service) decideRepo(ctx context.Context, d *db.Delivery, src source.Source, ev ci.Event) (outcome, error) {
	if why, err := s.repeatsGap(ctx, d, ev); err != nil {
		return outcome{}, s.failed("resolve", err)
	} else if why != "" {
		return outcome{status: statusSkipped, event: ev, err: why}, nil
	}
	at, commit, err := s.commits(ctx, d.RoutingKey, src, ev)
	if errors.Is(err, ErrNoCommit) || errors.Is(err, source.ErrTooLarge) { // the repository; workflows that are too large are corrupt
		return outcome{status: statusFailed, event: ev, err: err.Error()}, s.count("lock")
	} else if err != nil { // unreachable is not missing (LOCK-5)
		return outcome{}, s.failed("lock", err)
	}
	if ev.Title == "" {
		ev.Title = commit.Title
	}
	if ev.Actor == "" {
		ev.Actor = commit.Author
	}
	out := outcome{status: statusProcessed, event: ev}
	if out.sync, err = s.planSync(ctx, d, src, ev, at); err != nil {
		return outcome{}, s.failed("match", err)
	}
	switch at.result {
	case workflow.Missing:
		out.status = statusMissing
		out.err = "the commit has no workflows: neither " + workflow.LockPath + " nor " + workflow.FilesDir + "/*.yaml"
		if out, err = s.matchGlobals(ctx, d, src, out); err != nil { // LOCK-4
			return outcome{}, s.failed("match", err)
		}
		if out.matched > 0 {
			out.status, out.err = statusProcessed, ""
		}
		return out, nil
	case workflow.OK:
		if out, err = s.match(ctx, d, src, at, out); err != nil {
			return out, err
		}
		if out, err = s.matchGlobals(ctx, d, src, out); err != nil {
			return outcome{}, s.failed("match", err)
		}
		return out, nil
	default:
		out.status, out.err = statusCorrupt, unusable(at)
		out.runs = []PlannedRun{s.d.Runs.PlanFailed(FailedRun{
			OrgID: d.OrgID, RoutingKey: d.RoutingKey, Repo: ev.Repo, Event: lean(ev), TriggerEvent: triggerEvent(ev),
			DeliveryRow: d.ID, DedupKey: d.ID + ":" + UnresolvedWorkflow, Actor: ev.Actor, TrustTier: tierOf(ev),
			InitFailure: "lock_resolution", Reason: out.err, Checks: s.reports(ctx, d.OrgID, d.RoutingKey),
		})}
		return out, s.count("lock")
	}
}

// unusable says what is wrong with the commit's workflows: every mistake with its place.
func unusable(at *resolved) string {
	var lines []string
	for _, p := range at.problems {
		if !p.Warning {
			lines = append(lines, p.Error())
		}
	}
	text := short(strings.Join(lines, "\n"), maxReason)
	if at.result == workflow.Drift {
		return "the committed lock file is not the one that its workflow files make; run `kici compile` and commit the result\n" + text
	}
	return "the commit's workflows cannot be used\n" + text
}

const maxReason = 16 << 10

// short cuts text to at most limit bytes and says so.
func short(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "\n… and more"
}

// match plans a run for each workflow of the commit that the event starts.
func (s *Service) match(ctx context.Context, d *db.Delivery, src source.Source, at *resolved, out outcome) (outcome, error) {
	began := s.d.Env.Now()
	if err := changedFiles(ctx, src, at, &out.event); err != nil {
		return outcome{}, s.failed("match", err)
	}
	for i := range at.file.Workflows {
		w := &at.file.Workflows[i]
		found := workflow.Match(w, out.event)
		out.decisions = append(out.decisions, decided("", w.Name, found))
		if !found.Matched {
			continue
		}
		out.matched++
		ev := lean(out.event)
		out.runs = append(out.runs, s.d.Runs.Plan(NewRun{
			OrgID: d.OrgID, RoutingKey: d.RoutingKey, Repo: ev.Repo, Workflow: *w, Event: ev, TriggerEvent: triggerEvent(ev),
			Decision: found, DeliveryRow: d.ID, DedupKey: d.ID + ":" + w.Name, Actor: ev.Actor, TrustTier: tierOf(ev), Warnings: forkWarnings(out.event),
			Checks: s.reports(ctx, d.OrgID, d.RoutingKey),
		}))
	}
	s.d.Metrics.TriggerMatch.Observe(s.d.Env.Now().Sub(began).Seconds())
	return out, nil
}

func decided(repo, name string, d workflow.Decision) decision {
	return decision{Repo: repo, Workflow: name, Matched: d.Matched, Trigger: d.TriggerType, Degraded: d.Degraded, Checks: d.Checks}
}

// changedFiles asks for the list only when somebody looks at it (PIPE-6). When it cannot be had, path filters pass and the
// decision says so (WF-15).
func changedFiles(ctx context.Context, src source.Source, at *resolved, ev *ci.Event) error {
	needed := ev.Fork // for forkWarnings
	for i := range at.file.Workflows {
		needed = needed || workflow.NeedsChangedFiles(&at.file.Workflows[i])
	}
	if !needed {
		return nil
	}
	return fetchChanged(ctx, src, ev)
}

// fetchChanged fills the list of changed files, or why it is unknown, once.
func fetchChanged(ctx context.Context, src source.Source, ev *ci.Event) error {
	if ev.ChangedFiles != nil || ev.ChangedFilesErr != "" {
		return nil
	}
	files, err := src.ChangedFiles(ctx, ev.Before, ev.SHA)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		ev.ChangedFilesErr = short(err.Error(), 500)
		return nil
	}
	ev.ChangedFiles = files
	return nil
}

// lean is the event as runs keep it: without the list that only matching needs.
func lean(ev ci.Event) ci.Event {
	ev.ChangedFiles = nil
	return ev
}

// triggerEvent is the type, or type:action (WF-20).
func triggerEvent(ev ci.Event) string {
	if ev.Action != "" {
		return ev.Type + ":" + ev.Action
	}
	return ev.Type
}

// decideRegistered starts the registered workflows that wait for a generic source's event, each at the commit of its
// registration and with that repository's own source (ING-25). Its result does not depend on the others' (ING-26).
func (s *Service) decideRegistered(ctx context.Context, d *db.Delivery, src source.Source, ev ci.Event) (outcome, error) {
	out := outcome{status: statusProcessed, event: ev}
	only := ""
	if l, ok := src.(source.Limited); ok {
		only = l.Repository()
	}
	found, err := s.d.Registrations.Triggered(ctx, d.OrgID, ev.Type)
	if err != nil {
		return outcome{}, s.failed("match", err)
	}
	for reg, w := range found {
		if only != "" && reg.Repo != only {
			continue
		}
		decision := workflow.Match(w, ev)
		out.decisions = append(out.decisions, decided(reg.Repo, w.Name, decision))
		if !decision.Matched {
			continue
		}
		out.matched++
		planned, err := s.planPatiently(ctx, d, RegisteredStart{
			OrgID: d.OrgID, Registration: reg, Workflow: *w, Event: ev, Decision: decision, DeliveryRow: d.ID, DedupKey: d.ID + ":" + reg.ID,
			TrustTier: ci.TierTrusted, Actor: ev.Actor, TriggerEvent: triggerEvent(ev), Branch: reg.DefaultBranch,
		})
		if err != nil {
			return outcome{}, s.failed("resolve", err)
		}
		out.runs = append(out.runs, planned)
	}
	return out, nil
}

// planPatiently waits patientAttempts for a repository that cannot be reached. Then its run fails and says so: it must not keep the
// workflows of other repositories from running (ING-26).
func (s *Service) planPatiently(ctx context.Context, d *db.Delivery, r RegisteredStart) (PlannedRun, error) {
	planned, err := s.PlanRegistered(ctx, r)
	if err == nil || d.Attempts <= patientAttempts || ctx.Err() != nil {
		return planned, err
	}
	_ = s.count("resolve")
	s.log.Warn("registered workflow is not started", "delivery_id", d.ID, "registration_id", r.Registration.ID, "repo", r.Registration.Repo, "err", err)
	return s.planUnstarted(s.registeredRun(ctx, r), r.Registration, err), nil
}
