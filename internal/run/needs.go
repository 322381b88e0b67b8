package run

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// settle follows what ended through the needs graph until nothing moves, then gives the verdict if every job has ended, and
// wakes whoever watches.
func (l *life) settle() error {
	for len(l.ended) > 0 {
		up := l.ended[0]
		l.ended = l.ended[1:]
		waiting, err := l.tx.WaitingOn(l.ctx, up.id)
		if err != nil {
			return fmt.Errorf("read dependents: %w", err)
		}
		open := map[string]bool{} // by base job: its children have the same needs (NEED-1)
		for _, w := range waiting {
			admitted := admits(w.RunOn, up.effective())
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
	l.notify()
	return nil
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

// admits reports whether an edge's set holds the status.
func admits(runOn string, status ci.JobStatus) bool {
	return strings.Contains(runOn, ","+string(status)+",")
}

// decide settles one waiting job by all its edges: it is skipped, becomes ready, or goes on waiting.
func (l *life) decide(jobID, base string) error {
	needs, err := l.needs(jobID, base)
	if err != nil {
		return err
	}
	switch needsVerdict(needs) {
	case needsRefuse:
		job, err := l.tx.LockJob(l.ctx, jobID)
		if err != nil {
			return fmt.Errorf("lock job: %w", err)
		}
		if job.Status != string(ci.JobPending) || job.NeedsSatisfied {
			return nil
		}
		_, err = l.end(job, ending{status: ci.JobSkipped})
		return err
	case needsMet:
		return l.readyWith(jobID, base)
	}
	return nil
}

// metNeeds is what the needs of a job, or of all children of one, have come to.
type metNeeds struct {
	needs   []db.NeedsOfJobRow
	context map[string]any // needs.<job>
}

// needs reads the edges of a job with what has become of the other ends. Once all have ended nothing of it changes any more,
// and it is the same for every child of a fan-out, so it is read once for all of them.
func (l *life) needs(jobID, base string) ([]db.NeedsOfJobRow, error) {
	if m := l.met[base]; m != nil {
		return m.needs, nil
	}
	rows, err := l.tx.NeedsOfJob(l.ctx, jobID)
	if err != nil {
		return nil, fmt.Errorf("read needs: %w", err)
	}
	if needsVerdict(rows) == needsMet {
		if l.met == nil {
			l.met = map[string]*metNeeds{}
		}
		l.met[base] = &metNeeds{needs: rows, context: needsContext(rows)}
	}
	return rows, nil
}

type needsState int

const (
	needsOpen needsState = iota + 1
	needsMet
	needsRefuse
)

// needsVerdict is NEED-2: refused as soon as one upstream ended outside its edge's set, met when all ended inside.
func needsVerdict(needs []db.NeedsOfJobRow) needsState {
	state := needsMet
	for _, n := range needs {
		up := endedJob{status: ci.JobStatus(n.Status), allowed: n.AllowedFailure}
		switch {
		case !up.status.Terminal():
			state = needsOpen
		case !admits(n.RunOn, up.effective()):
			return needsRefuse
		}
	}
	return state
}

// ready takes a job that needs nothing.
func (l *life) ready(jobID string) error { return l.readyWith(jobID, "") }

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
	out, err := l.evaluate(job, l.met[base])
	if err != nil {
		return err
	}
	switch {
	case out.failure != nil:
		_, err = l.end(job, ending{status: ci.JobFailed, message: out.failure.message, initFailure: out.failure.category})
	case out.skip != "":
		_, err = l.end(job, ending{status: ci.JobSkipped, message: out.skip})
	default:
		err = l.enqueue(job, out)
	}
	return err
}

func (l *life) failInit(jobID string, f initFailure) error {
	job, err := l.tx.LockJob(l.ctx, jobID)
	if err != nil {
		return fmt.Errorf("lock job: %w", err)
	}
	_, err = l.end(job, ending{status: ci.JobFailed, message: f.message, initFailure: f.category})
	return err
}

// evaluate gathers what the job's expressions can see and evaluates them.
func (l *life) evaluate(job db.LockJobRow, met *metNeeds) (outcome, error) {
	if met == nil {
		met = &metNeeds{context: map[string]any{}}
	}
	def, err := l.definition()
	if err != nil {
		return outcome{}, err
	}
	row, err := l.tx.JobDefinition(l.ctx, job.ID)
	if err != nil {
		return outcome{}, fmt.Errorf("read job definition: %w", err)
	}
	var lj lock.Job
	if err := json.Unmarshal([]byte(row.LockJob), &lj); err != nil {
		return outcome{}, fmt.Errorf("decode job definition: %w", err)
	}
	f := facts{
		server: l.s.settings.ServerURL, run: l.run, event: def.event, inputs: def.inputs, workflow: &def.workflow, job: &lj,
		matrix: json.RawMessage(row.Matrix), needs: met.context,
	}
	if len(met.needs) > 0 && expr.UsesStatus(lj.If) {
		if f.status, err = l.statusWord(job.ID, met.needs); err != nil {
			return outcome{}, err
		}
	}
	return f.evaluate(), nil
}

// statusWord answers success(), failure() and cancelled() for a job: success when every job it needs succeeded, else failure
// or cancelled when any job before it did, else skipped.
func (l *life) statusWord(jobID string, needs []db.NeedsOfJobRow) (string, error) {
	allGood := true
	for _, n := range needs {
		allGood = allGood && ci.JobStatus(n.Status).Result(n.AllowedFailure) == "success"
	}
	if allGood {
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
	return ancestorsWord(jobID, jobs, edges), nil
}

func ancestorsWord(jobID string, jobs []db.RunJobsRow, edges []db.RunEdgesRow) string {
	ups := map[string][]string{}
	for _, e := range edges {
		ups[e.JobID] = append(ups[e.JobID], e.NeedsID)
	}
	results := map[string]string{}
	for _, j := range jobs {
		results[j.ID] = ci.JobStatus(j.Status).Result(j.AllowedFailure)
	}
	word := "skipped"
	seen := map[string]bool{}
	for todo := ups[jobID]; len(todo) > 0; {
		id := todo[0]
		todo = todo[1:]
		if seen[id] {
			continue
		}
		seen[id] = true
		switch results[id] {
		case "failure":
			return "failure"
		case "cancelled":
			word = "cancelled"
		}
		todo = append(todo, ups[id]...)
	}
	return word
}

// enqueue puts a ready job into the queue (QUE-1…3).
func (l *life) enqueue(job db.LockJobRow, out outcome) error {
	full, err := l.s.depth.full(l.ctx, l.tx, l.s.settings.QueueMaxDepth)
	if err != nil {
		return err
	}
	if full {
		_, err := l.end(job, ending{status: ci.JobFailed, initFailure: initQueueFull, message: fmt.Sprintf(
			"queue full: %d jobs already wait for an agent", l.s.settings.QueueMaxDepth)})
		return err
	}
	var deadline int64
	if t := l.s.settings.QueueTimeout; t > 0 {
		deadline = l.now + t.Milliseconds()
	}
	_, err = l.tx.EnqueueJob(l.ctx, db.EnqueueJobParams{
		ID: job.ID, ReadyAt: nullInt(l.now), QueueDeadlineAt: nullInt(deadline), Labels: mustJSON(out.labels), ExcludeLabels: mustJSON(out.exclude),
		CpuMilli: out.claim.Requests.CPUMilli, MemBytes: out.claim.Requests.MemBytes,
		CpuLimitMilli: out.claim.Limits.CPUMilli, MemLimitBytes: out.claim.Limits.MemBytes, Shape: out.shape,
	})
	if err != nil {
		return fmt.Errorf("enqueue job: %w", err)
	}
	l.queued, l.changed = true, true
	return nil
}
