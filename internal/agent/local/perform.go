package local

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"

	"github.com/kici-go/kici/internal/agent/job"
	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
)

// perform runs one job in a directory of its own, which is gone afterwards.
func (r *Runner) perform(i int) {
	r.mu.Lock()
	u := r.jobs[i] // its plan and facts do not change any more
	r.mu.Unlock()
	dir, err := r.o.Work.Job(u.ID, 1)
	if err != nil {
		r.ended(i, ci.JobFailed, err.Error(), func(u *unit) { u.InitFailure = job.InitWorkspace })
		return
	}
	sp := spool.New(spool.Config{Dir: filepath.Join(dir, "spool"), Post: r.post(i), Now: r.o.Now, Log: r.o.Log})
	ctx, stop := context.WithCancel(context.Background())
	posted := make(chan struct{})
	go func() {
		defer close(posted)
		_ = sp.Run(ctx)
	}()
	out := r.execute(i, u, dir, sp)
	_ = sp.Drained(ctx)
	stop()
	<-posted
	sp.Close()
	if err := r.o.Work.Remove(dir); err != nil {
		r.o.Log.Warn("remove the job's directory", "job", u.Name, "err", err)
	}
	r.ended(i, out.Status, out.Error, func(u *unit) {
		u.InitFailure, u.Outputs, u.KillMethod = out.InitFailure, out.Outputs, out.KillMethod
		u.StartedAt = out.StartedAt
		u.outputs = string(encode(out.Outputs))
	})
}

// execute hands the job to the agent's executor, and a cancel that came meanwhile with it.
func (r *Runner) execute(i int, u unit, dir string, sp *spool.Spool) job.Outcome {
	host, _ := os.Hostname()
	cfg := job.Config{
		Spec: r.spec(u), Dir: dir, AgentID: "local", Hostname: host, Version: r.o.Version, Environ: r.o.Environ, Spool: sp,
		Report: func(s wire.StepStatus) { r.reportStep(i, s) }, Ask: r.ask(i), Executable: r.o.Executable, Now: r.o.Now, Log: r.o.Log,
	}
	cfg.Workspace, cfg.Fill = r.o.Tree.source(r.o.Mode)
	j := job.New(cfg)
	r.mu.Lock()
	r.jobs[i].cancel = func(force bool) { j.Cancel(force, r.o.Grace) }
	cancelled, forced := r.cancelling != "" || r.jobs[i].stopped != "", r.forced
	r.mu.Unlock()
	if cancelled {
		j.Cancel(forced, r.o.Grace)
	}
	return j.Run()
}

func (r *Runner) reportStep(i int, s wire.StepStatus) {
	r.mu.Lock()
	r.jobs[i].step(s)
	r.mu.Unlock()
	r.wake.Signal()
}

// spec is what a server would send to an agent.
func (r *Runner) spec(u unit) wire.JobSpec {
	flow, c := r.o.Facts.Workflow, u.facts.Contexts()
	s := wire.JobSpec{
		RunID: r.o.Facts.Run.ID, JobID: u.ID, Attempt: 1, Job: json.RawMessage(u.Text), Workflow: flow.Name, Env: map[string]string{},
		Defaults: encode(flow.Defaults), Secrets: r.o.Secrets, TimeoutMs: u.Def.TimeoutMs, GraceMs: u.Def.GracePeriodMs,
		Contexts: wire.Contexts{Kici: encode(c["kici"]), Matrix: u.facts.Matrix, Needs: encode(u.facts.Needs), Inputs: encode(c["inputs"])},
	}
	maps.Copy(s.Env, flow.Env)
	maps.Copy(s.Env, u.Def.Env)
	maps.Copy(s.Env, r.o.Env)
	if u.Def.Checkout == nil || *u.Def.Checkout {
		s.Checkout = r.o.Tree.checkout(r.o.Mode)
	}
	return s
}

// post takes the log where a server would: every line is passed on at once.
func (r *Runner) post(i int) spool.Post {
	return func(_ context.Context, c spool.Chunk) (wire.LogAck, error) {
		ack := wire.LogAck{Offset: c.Offset + c.Body.Size()}
		if r.o.Line == nil {
			return ack, nil
		}
		l := Line{Step: c.Step}
		r.mu.Lock()
		l.Job = r.jobs[i].Display
		for _, s := range r.jobs[i].Steps {
			if s.StepIndex == c.Step {
				l.StepName = s.Name
			}
		}
		r.mu.Unlock()
		lines := bufio.NewScanner(c.Body)
		lines.Buffer(make([]byte, 64<<10), wire.MaxLogChunkBytes)
		for lines.Scan() {
			l.LogLine = wire.LogLine{}
			if json.Unmarshal(lines.Bytes(), &l.LogLine) == nil {
				r.o.Line(l)
			}
		}
		return ack, nil
	}
}
