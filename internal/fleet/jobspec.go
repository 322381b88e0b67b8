package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// jobSpec answers the holder of a job's open assignment with all that it needs to run the job.
func (f *Fleet) jobSpec(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	row, err := f.heldJob(r)
	if err != nil {
		f.fail(w, r, err)
		return
	}
	spec, err := f.spec(ctx, row)
	if init, ok := errors.AsType[*initFailure](err); ok {
		err = f.failJob(row, init)
		if err == nil {
			err = errNotYours
		}
	}
	if err != nil {
		f.fail(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, spec)
}

// heldJob is the job of a request, whose open assignment the caller must hold.
func (f *Fleet) heldJob(r *http.Request) (row db.FleetJobSpecRow, err error) {
	agentID, err := f.caller(r)
	if err != nil {
		return row, err
	}
	row, err = f.Store.Read().FleetJobSpec(r.Context(), r.PathValue("job"))
	if errors.Is(err, sql.ErrNoRows) || err == nil && row.AgentID != agentID {
		return row, errNotYours
	}
	return row, err
}

// initFailure ends a job that cannot be described to its agent.
type initFailure struct {
	category string
	cause    error
}

func (e *initFailure) Error() string { return e.category + ": " + e.cause.Error() }

func (f *Fleet) failJob(row db.FleetJobSpecRow, init *initFailure) error {
	f.Log.Error("describe job", "job_id", row.ID, "run_id", row.RunID, "category", init.category, "err", init.cause)
	return f.persist(func(_ context.Context, tx *store.Tx) error {
		_, err := f.Reports(tx, row.AgentID).Finish(wire.JobStatus{
			RunID: row.RunID, JobID: row.ID, Attempt: int(row.Attempt), Status: string(ci.JobFailed),
			InitFailure: init.category, Error: clip(init.cause.Error(), maxErrorText),
		}, 0)
		return err
	})
}

func (f *Fleet) spec(ctx context.Context, row db.FleetJobSpecRow) (wire.JobSpec, error) {
	var job lock.Job
	var flow lock.Workflow
	if err := errors.Join(json.Unmarshal([]byte(row.LockJob), &job), json.Unmarshal([]byte(row.LockEntry), &flow)); err != nil {
		return wire.JobSpec{}, &initFailure{"spec", fmt.Errorf("decode job: %w", err)}
	}
	values, err := f.Contexts.AgentContexts(ctx, row.ID)
	if err != nil {
		return wire.JobSpec{}, fmt.Errorf("make contexts: %w", err)
	}
	values.Kici = boundEvent(values.Kici)
	spec := wire.JobSpec{
		RunID: row.RunID, JobID: row.ID, Attempt: int(row.Attempt), Job: sealedJob(row.LockJob), Workflow: row.Workflow,
		Env: map[string]string{}, Contexts: values, TimeoutMs: row.TimeoutMs, GraceMs: job.GracePeriodMs,
	}
	if spec.GraceMs <= 0 {
		spec.GraceMs = f.Settings.CancelGrace.Milliseconds()
	}
	if job.Container != nil {
		maps.Copy(spec.Env, job.Container.Env)
	}
	maps.Copy(spec.Env, flow.Env)
	maps.Copy(spec.Env, job.Env)
	if spec.Defaults, err = json.Marshal(flow.Defaults); err != nil {
		return wire.JobSpec{}, err
	}
	if ci.TrustTier(row.TrustTier) == ci.TierTrusted { // XC-118: no tier, no secrets
		if spec.Secrets, err = f.Secrets.Resolve(ctx, row.OrgID); err != nil {
			return wire.JobSpec{}, &initFailure{"secret_resolution", err}
		}
	}
	if job.Checkout == nil || *job.Checkout {
		if spec.Checkout, err = f.checkout(ctx, row); err != nil {
			return wire.JobSpec{}, &initFailure{"checkout", err}
		}
	}
	return spec, nil
}

// maxEventBytes bounds the payload of the event in a description, well below wire.MaxJobSpecBytes.
const maxEventBytes = 4 << 20

// boundEvent replaces a payload that would make the description larger than an agent takes. What expressions see then says
// so; decisions before the agent had all of it.
func boundEvent(kici json.RawMessage) json.RawMessage {
	if len(kici) <= maxEventBytes {
		return kici
	}
	var props map[string]json.RawMessage
	if err := json.Unmarshal(kici, &props); err != nil {
		return kici
	}
	note := fmt.Sprintf("the payload of this event has %d bytes, too many for a job's contexts", len(props["event"]))
	props["event"], _ = json.Marshal(map[string]string{"kici_notice": note})
	out, err := json.Marshal(props)
	if err != nil {
		return kici
	}
	return out
}

// checkout says where the repository is; nil for a run without a commit.
func (f *Fleet) checkout(ctx context.Context, row db.FleetJobSpecRow) (*wire.Checkout, error) {
	if row.Sha == "" {
		return nil, nil
	}
	c, err := f.Clones.CloneFor(ctx, row.OrgID, row.RoutingKey)
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	return &wire.Checkout{
		URL: c.URL, SHA: row.Sha, Ref: row.Ref, Username: c.Username, Password: c.Password, SSHKey: c.SSHKey, KnownHosts: c.KnownHosts,
	}, nil
}
