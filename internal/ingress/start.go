package ingress

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// StartRequest starts a workflow by hand (workflow_dispatch).
type StartRequest struct {
	OrgID     string
	Source    string // name, id or routing key
	Workflow  string // its name, or its file's
	Ref       string // branch, tag, full ref or commit; "" is the default branch
	Inputs    map[string]any
	By        string
	RequestID string // Idempotency-Key: a repeat gets the first request's run (PIPE-27); "" never repeats
}

// kindManual is the kind of the deliveries that API starts leave behind.
const kindManual = "manual"

// Start makes a run of one workflow and returns its id when it is durable. It leaves a delivery, already processed, in the same
// transaction.
func (s *Service) Start(ctx context.Context, req StartRequest) (string, error) {
	e, err := s.get(ctx, req.OrgID, req.Source)
	if err != nil {
		return "", err
	}
	src, err := e.usable()
	if err != nil {
		return "", err
	}
	if !src.HasRepo() {
		return "", invalid("source %s has no repository to take workflows from", e.row.Name)
	}
	if first, err := s.startedBefore(ctx, e.row, req); err != nil || first != "" {
		return first, err
	}
	ev, at, err := s.manualEvent(ctx, e.row, src, req)
	if err != nil {
		return "", err
	}
	w, trigger, err := pickWorkflow(at, req.Workflow)
	if err != nil {
		return "", err
	}
	inputs, problems := workflow.ResolveInputs(trigger, req.Inputs)
	if workflow.HasErrors(problems) {
		return "", problemsError("the inputs are not what workflow "+w.Name+" takes", problems)
	}
	ev.Inputs = inputs
	return s.startRun(ctx, e.row, req, w, ev)
}

// manualID is the delivery id of a start; the unique insert makes a repeated request find the first one.
func manualID(row db.Source, key string) string { return row.RoutingKey + ":manual:" + key }

func (s *Service) startedBefore(ctx context.Context, row db.Source, req StartRequest) (string, error) {
	if req.RequestID == "" {
		return "", nil
	}
	first, err := s.d.Store.Read().DeliveryBySenderID(ctx, row.OrgID, manualID(row, req.RequestID))
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return first.RunID.String, err
}

// manualEvent resolves the ref and loads what its commit has.
func (s *Service) manualEvent(ctx context.Context, row db.Source, src source.Source, req StartRequest) (ci.Event, *resolved, error) {
	ev := ci.Event{Type: workflow.TypeDispatch, Name: workflow.ManualEvent, Source: row.Name, Repo: row.Repo, Actor: req.By}
	commit, err := s.resolveRef(ctx, src, req.Ref, &ev)
	if err != nil {
		return ev, nil, err
	}
	ev.SHA, ev.Title = commit.SHA, commit.Title
	at, err := s.workflows(ctx, row.RoutingKey, commit.SHA, src)
	if err != nil {
		return ev, nil, err
	}
	payload, err := json.Marshal(map[string]any{"ref": ev.Ref, "workflow": req.Workflow, "inputs": req.Inputs, "sender": map[string]string{"login": req.By}})
	if err != nil {
		return ev, nil, invalid("inputs: %v", err)
	}
	ev.Payload = payload
	switch at.result {
	case workflow.OK:
		return ev, at, nil
	case workflow.Missing:
		return ev, nil, invalid("%s has no workflows: neither %s nor %s/*.yaml", where(ev), workflow.LockPath, workflow.FilesDir)
	case workflow.Drift:
		return ev, nil, problemsError("the lock file of "+where(ev)+" is not up to date; run `kici compile` and commit the result", at.problems)
	default:
		return ev, nil, problemsError("the workflows of "+where(ev)+" cannot be used", at.problems)
	}
}

// resolveRef finds the commit behind ref ("" is the default branch) and fills the event's ref, branch and tag.
func (s *Service) resolveRef(ctx context.Context, src source.Source, ref string, ev *ci.Event) (source.Commit, error) {
	branch, err := src.DefaultBranch(ctx)
	switch {
	case errors.Is(err, source.ErrNotFound) && ref == "":
		return source.Commit{}, invalid("the repository has no default branch; name a ref")
	case err != nil && !errors.Is(err, source.ErrNotFound):
		return source.Commit{}, err
	}
	ev.DefaultBranch = branch
	if ref == "" {
		ref = "refs/heads/" + branch
	}
	commit, err := src.Resolve(ctx, ref)
	if errors.Is(err, source.ErrNotFound) {
		return commit, invalid("source %s has no branch, tag or commit %q", ev.Source, short(ref, 200))
	} else if err != nil {
		return commit, err
	}
	ev.Ref = commit.Ref
	if b, ok := strings.CutPrefix(commit.Ref, "refs/heads/"); ok {
		ev.Branch = b
	} else if t, ok := strings.CutPrefix(commit.Ref, "refs/tags/"); ok {
		ev.Tag = t
	}
	return commit, nil
}

// where names a commit for people.
func where(ev ci.Event) string {
	for _, name := range []string{ev.Branch, ev.Tag} {
		if name != "" {
			return name + " (" + ev.SHA[:7] + ")"
		}
	}
	return ev.SHA
}

func problemsError(message string, problems []workflow.Problem) error {
	e := &RequestError{Message: message}
	for _, p := range problems {
		if !p.Warning {
			e.Details = append(e.Details, p.Error())
		}
	}
	return e
}

// pickWorkflow finds a workflow by its name or its file's, and its workflow_dispatch trigger.
func pickWorkflow(at *resolved, name string) (*lock.Workflow, *lock.Trigger, error) {
	var startable, all []string
	var found *lock.Workflow
	for i := range at.file.Workflows {
		w := &at.file.Workflows[i]
		all = append(all, w.Name)
		if workflow.DispatchTrigger(w) != nil {
			startable = append(startable, w.Name)
		}
		file := path.Base(w.SourceFile)
		if w.Name == name || found == nil && (file == name || strings.TrimSuffix(file, path.Ext(file)) == name) {
			found = w
		}
	}
	can := "no workflow of this commit has one"
	if len(startable) > 0 {
		can = "these have one: " + strings.Join(startable, ", ")
	}
	switch {
	case found == nil:
		return nil, nil, invalid("there is no workflow %q; this commit has: %s", short(name, 200), strings.Join(all, ", "))
	case workflow.DispatchTrigger(found) == nil:
		return nil, nil, invalid("workflow %s has no workflow_dispatch trigger, so it cannot be started by hand; %s", found.Name, can)
	}
	return found, workflow.DispatchTrigger(found), nil
}

// startRun writes run and delivery together.
func (s *Service) startRun(ctx context.Context, row db.Source, req StartRequest, w *lock.Workflow, ev ci.Event) (string, error) {
	id := s.d.Env.NewID()
	key := req.RequestID
	if key == "" {
		key = id
	}
	found := workflow.Match(w, ev)
	planned := s.d.Runs.Plan(NewRun{
		OrgID: row.OrgID, RoutingKey: row.RoutingKey, Repo: row.Repo, Workflow: *w, Event: ev, TriggerEvent: triggerEvent(ev),
		Decision: found, DeliveryRow: id, DedupKey: id + ":" + w.Name, Inputs: ev.Inputs, Actor: req.By, TrustTier: ci.TierTrusted,
		Checks: s.reports(ctx, row.OrgID, row.RoutingKey),
	})
	body, encoding := s.codec.pack(ev.Payload)
	var runID string
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		first, err := tx.DeliveryBySenderID(ctx, row.OrgID, manualID(row, key))
		if err == nil {
			runID = first.RunID.String
			return nil
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if runID, _, err = planned.Insert(ctx, tx); err != nil {
			return err
		}
		n, err := tx.InsertDelivery(ctx, db.InsertDeliveryParams{
			ID: id, OrgID: row.OrgID, DeliveryID: manualID(row, key), SourceID: row.ID, RoutingKey: row.RoutingKey, Kind: kindManual,
			Event: workflow.ManualEvent, Repo: row.Repo, Ref: ev.Ref, Sha: ev.SHA, Status: statusProcessed, BodyEncoding: encoding,
			BodySize: int64(len(ev.Payload)), BodySha256: bodyDigest(ev.Payload), ReceivedAt: tx.Now(),
			FinishedAt: sql.NullInt64{Int64: tx.Now(), Valid: true}, Matched: 1, RunID: sql.NullString{String: runID, Valid: true},
			Headers: "{}", Decisions: encodeDecisions([]decision{decided("", w.Name, found)}), Body: body,
		})
		if err == nil && n == 0 { // PostgreSQL: the same request committed first; what we inserted is undone
			return errRepeated
		}
		return err
	})
	if errors.Is(err, errRepeated) {
		return s.startedBefore(ctx, row, req)
	}
	return runID, err
}
