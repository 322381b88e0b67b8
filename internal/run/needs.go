package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// settle follows what ended through the needs graph until nothing moves, then gives the verdict if every job has ended, and
// wakes whoever watches.
func (l *life) settle() error {
	for len(l.ended)+len(l.freed) > 0 {
		if len(l.ended) == 0 { // needs first: what they skip takes no place
			base := l.freed[0]
			l.freed = l.freed[1:]
			if err := l.refill(base); err != nil {
				return err
			}
			continue
		}
		up := l.ended[0]
		l.ended = l.ended[1:]
		waiting, err := l.tx.WaitingOn(l.ctx, up.id)
		if err != nil {
			return fmt.Errorf("read dependents: %w", err)
		}
		open := map[string]bool{} // by base job: its children have the same needs (NEED-1)
		for _, w := range waiting {
			admitted := plan.RunOn(w.RunOn).Admits(plan.Effective(up.status, up.allowed))
			if admitted && open[w.BaseName] {
				continue
			}
			if open[w.BaseName], err = l.reconsider(w.JobID, w.BaseName, admitted); err != nil {
				return err
			}
		}
	}
	if err := l.verdict(); err != nil {
		return err
	}
	return l.done()
}

// reconsider looks at a waiting job after one of its needs ended (NEED-2). Jobs with needs still open are the common case
// and cost one look.
func (l *life) reconsider(jobID, base string, admitted bool) (open bool, err error) {
	if admitted {
		n, err := l.tx.HasOpenNeed(l.ctx, jobID)
		if err != nil {
			return false, fmt.Errorf("look at needs: %w", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, l.decide(jobID, base)
}

// decide settles one waiting job by all its edges: it is skipped, becomes ready, or goes on waiting.
func (l *life) decide(jobID, base string) error {
	needs, err := l.needs(jobID, base)
	if err != nil {
		return err
	}
	switch plan.Judge(needs) {
	case plan.NeedsRefused:
		job, err := l.tx.LockJob(l.ctx, jobID)
		if err != nil {
			return fmt.Errorf("lock job: %w", err)
		}
		if job.Status != string(ci.JobPending) || job.NeedsSatisfied {
			return nil
		}
		_, err = l.end(job, ending{status: ci.JobSkipped})
		return err
	case plan.NeedsMet:
		return l.readyWith(jobID, base)
	}
	return nil
}

// metNeeds is what the needs of a job, or of all children of one, have come to.
type metNeeds struct {
	needs   []plan.Need
	context map[string]any // needs.<job>
}

// needs reads the edges of a job with what has become of the other ends. Once all have ended nothing of it changes any more,
// and it is the same for every child of a fan-out, so it is read once for all of them.
func (l *life) needs(jobID, base string) ([]plan.Need, error) {
	if m := l.met[base]; m != nil {
		return m.needs, nil
	}
	rows, err := l.tx.NeedsOfJob(l.ctx, jobID)
	if err != nil {
		return nil, fmt.Errorf("read needs: %w", err)
	}
	needs := needsOf(rows)
	if plan.Judge(needs) == plan.NeedsMet {
		if l.met == nil {
			l.met = map[string]*metNeeds{}
		}
		l.met[base] = &metNeeds{needs: needs, context: plan.NeedsContext(needs)}
	}
	return needs, nil
}

func needsOf(rows []db.NeedsOfJobRow) []plan.Need {
	out := make([]plan.Need, len(rows))
	for i, r := range rows {
		out[i] = plan.Need{
			Name: r.NeedsName, RunOn: plan.RunOn(r.RunOn), Status: ci.JobStatus(r.Status), Allowed: r.AllowedFailure, Outputs: r.Outputs,
		}
	}
	return out
}

// readyWith claims a job whose needs are met and does what its condition and selector say (NEED-4, D8).
func (l *life) readyWith(jobID, base string) error {
	job, err := l.tx.LockJob(l.ctx, jobID)
	if err != nil {
		return fmt.Errorf("lock job: %w", err)
	}
	if job.Status != string(ci.JobPending) || job.NeedsSatisfied {
		return nil
	}
	if l.run.Status == string(ci.RunCancelling) {
		_, err := l.end(job, ending{status: ci.JobCancelled, message: "the run is being cancelled"})
		return err
	}
	def, err := l.tx.JobDefinition(l.ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read job definition: %w", err)
	}
	return l.judge(job, def, l.met[base])
}

// judge does what a job's condition and selector say.
func (l *life) judge(job db.LockJobRow, def db.JobDefinitionRow, met *metNeeds) error {
	out, err := l.evaluate(job, def, met)
	if err != nil {
		return err
	}
	switch {
	case out.Failure != nil:
		_, err = l.end(job, ending{status: ci.JobFailed, message: out.Failure.Message, initFailure: out.Failure.Category})
	case out.Skip != "":
		_, err = l.end(job, ending{status: ci.JobSkipped, message: out.Skip})
	default:
		err = l.letThrough(job, out)
	}
	return err
}

// letThrough queues a job if its fan-out and its concurrency group have room for it, in this order; it is held otherwise.
func (l *life) letThrough(job db.LockJobRow, out plan.Outcome) error {
	ok, err := l.pass(job)
	if err == nil && ok && out.Group != nil {
		ok, err = l.join(&job, *out.Group)
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return l.hold(job)
	}
	return l.enqueue(job, out)
}

func (l *life) failInit(jobID string, f plan.Failure) error {
	job, err := l.tx.LockJob(l.ctx, jobID)
	if err != nil {
		return fmt.Errorf("lock job: %w", err)
	}
	_, err = l.end(job, ending{status: ci.JobFailed, message: f.Message, initFailure: f.Category})
	return err
}

// evaluate gathers what the job's expressions can see and evaluates them.
func (l *life) evaluate(job db.LockJobRow, row db.JobDefinitionRow, met *metNeeds) (plan.Outcome, error) {
	if met == nil {
		met = &metNeeds{context: map[string]any{}}
	}
	def, err := l.definition()
	if err != nil {
		return plan.Outcome{}, err
	}
	var lj lock.Job
	if err := json.Unmarshal([]byte(row.LockJob), &lj); err != nil {
		return plan.Outcome{}, fmt.Errorf("decode job definition: %w", err)
	}
	f := plan.Facts{
		Server: l.s.settings.ServerURL, Run: exprRun(l.run), Event: def.event, Inputs: def.inputs, Workflow: &def.workflow, Job: &lj,
		Matrix: json.RawMessage(row.Matrix), Needs: met.context, Sandbox: l.s.limits(l.run.OrgID).Sandbox,
	}
	if len(met.needs) > 0 && expr.UsesStatus(lj.If) {
		if f.Status, err = l.statusWord(job.ID, met.needs); err != nil {
			return plan.Outcome{}, err
		}
	}
	return f.Evaluate(), nil
}

// statusWord answers success(), failure() and cancelled() for a job (plan.Word).
func (l *life) statusWord(jobID string, needs []plan.Need) (string, error) {
	if plan.AllSucceeded(needs) {
		return "success", nil
	}
	jobs, err := l.tx.RunJobs(l.ctx, l.run.ID)
	if err != nil {
		return "", fmt.Errorf("read jobs: %w", err)
	}
	edges, err := l.tx.RunEdges(l.ctx, l.run.ID)
	if err != nil {
		return "", fmt.Errorf("read edges: %w", err)
	}
	ups := map[string][]string{}
	for _, e := range edges {
		ups[e.JobID] = append(ups[e.JobID], e.NeedsID)
	}
	results := map[string]string{}
	for _, j := range jobs {
		results[j.ID] = ci.JobStatus(j.Status).Result(j.AllowedFailure)
	}
	return plan.Word(jobID, ups, results), nil
}

// enqueue puts a ready job into the queue (QUE-1…3). One that was held is never refused: it was accepted before (QUE-2).
func (l *life) enqueue(job db.LockJobRow, out plan.Outcome) error {
	limits := l.s.limits(l.run.OrgID)
	full := false
	var err error
	if job.Status != string(ci.JobHeld) {
		full, err = l.s.depth.full(l.ctx, l.tx, limits.QueueMaxDepth)
	}
	if err != nil {
		return err
	}
	if full {
		_, err := l.end(job, ending{status: ci.JobFailed, initFailure: initQueueFull, message: fmt.Sprintf(
			"queue full: %d jobs already wait for an agent", limits.QueueMaxDepth)})
		return err
	}
	var deadline int64
	if t := limits.QueueTimeout; t > 0 {
		deadline = l.now + t.Milliseconds()
	}
	_, err = l.tx.EnqueueJob(l.ctx, db.EnqueueJobParams{
		ID: job.ID, QueuedAt: nullInt(l.now), QueueDeadlineAt: nullInt(deadline), Labels: mustJSON(out.Labels), ExcludeLabels: mustJSON(out.Exclude),
		CpuMilli: out.Claim.Requests.CPUMilli, MemBytes: out.Claim.Requests.MemBytes,
		CpuLimitMilli: out.Claim.Limits.CPUMilli, MemLimitBytes: out.Claim.Limits.MemBytes, Shape: shapeKey(l.run.OrgID, out), Image: out.Image,
	})
	if err != nil {
		return fmt.Errorf("enqueue job: %w", err)
	}
	l.queued, l.changed = true, true
	return nil
}

// shapeKey names all jobs that ask for the same thing (D30). It is a digest, so that it fits an index whatever authors write.
func shapeKey(org string, o plan.Outcome) string {
	text, _ := json.Marshal([]any{org, o.Labels, o.Exclude, o.Claim, o.Image}) // strings and numbers always encode
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
