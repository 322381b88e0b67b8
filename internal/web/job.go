package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/store"
)

// jobView is one job with a part of its log.
type jobView struct {
	page
	Run client.Run
	Job client.Job
	Why *client.Why // while it is not running
	Log logView
}

func (s *server) job(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, ch := r.Context(), choiceOf(r)
	head, err := s.Reads.RunHead(ctx, c.scope, ch.run)
	if err != nil {
		return err
	}
	v, err := s.jobView(ctx, c, head, ch.job)
	if err != nil {
		return err
	}
	if v.Log, err = s.log(ctx, v.Job, ch); err != nil {
		return err
	}
	v.Log.Own = true
	if ch.find != "" && ch.step == allSteps {
		if err := s.findAll(ctx, &v.Log); err != nil {
			return err
		}
	}
	s.render(w, r, jobPage(v))
	return nil
}

func (s *server) jobView(ctx context.Context, c caller, head client.Run, ref string) (jobView, error) {
	job, err := s.Reads.Job(ctx, c.scope, ref)
	if err != nil {
		return jobView{}, err
	}
	if job.RunID != head.ID {
		return jobView{}, fmt.Errorf("job %q of run %s %w", ref, head.ID, read.ErrNotFound)
	}
	v := jobView{page: s.frame(c, "runs", fmt.Sprintf("%s · #%d · %s", job.DisplayName, head.Number, head.Repo)), Run: head, Job: job}
	v.Log = logView{Base: s.Base, Job: job, Ch: choice{step: allSteps}}
	if job.StartedAt == nil && job.FinishedAt == nil {
		why, err := s.Reads.Why(ctx, c.scope, job.ID)
		if err != nil {
			return jobView{}, err
		}
		v.Why = &why
	}
	return v, nil
}

// jobLive sends the parts of a job's page that have changed. The log has a stream of its own.
func (s *server) jobLive(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	ch := choiceOf(r)
	head, err := s.Reads.RunHead(ctx, c.scope, ch.run)
	if err != nil {
		return err
	}
	st := openStream(w)
	subs := []*store.Subscription{s.Hub.Subscribe(store.TopicRuns, head.ID)}
	return s.quietly(r, s.follow(ctx, st, subs, func() error {
		v, err := s.jobView(ctx, c, head, ch.job)
		if err != nil {
			return err
		}
		v.Log.Ch, v.Log.Own = ch, true
		if err := st.patch(ctx, append(v.parts(), part{id: "job-title", c: jobTitle(v)})); err != nil {
			return err
		}
		if v.Job.FinishedAt != nil {
			return errEnd
		}
		return nil
	}))
}

func (v jobView) parts() []part {
	return []part{{id: "job-head", c: jobHead(v)}, {id: "steps", c: stepList(v)}}
}

func (v jobView) live() bool { return v.Job.FinishedAt == nil }

// headline answers what a person came to ask of a job.
func (v jobView) headline() string {
	name := v.Job.DisplayName
	switch {
	case v.Job.Display.Class == "failed" || v.Job.Display.Class == "allowed":
		for _, st := range v.Job.Steps {
			if st.Display.Class == "failed" {
				return fmt.Sprintf("%s %s in step %d, %s", name, v.Job.Display.Word, st.Index, st.Name)
			}
		}
	case v.Job.Status == "success" && v.Job.DurationMs != nil:
		return name + " succeeded in " + durationMs(v.Job.DurationMs)
	case v.Job.Display.Class == "running":
		for i := len(v.Job.Steps) - 1; i >= 0; i-- {
			if st := v.Job.Steps[i]; st.Display.Class == "running" {
				return fmt.Sprintf("%s runs step %d, %s", name, st.Index, st.Name)
			}
		}
	}
	return name + ": " + v.Job.Display.Word
}

// facts are what is known about how a job ran.
func (v jobView) facts() (out [][2]string) {
	add := func(k, format string, a ...any) { out = append(out, [2]string{k, fmt.Sprintf(format, a...)}) }
	j := v.Job
	if j.WaitMs != nil && (j.StartedAt != nil || j.FinishedAt != nil) {
		add("waited", "%s", durationMs(j.WaitMs))
	}
	if j.AssignedAt != nil && j.StartedAt != nil {
		ms := max(j.StartedAt.UnixMilli()-j.AssignedAt.UnixMilli(), 0)
		add("of it starting", "%s", durationMs(&ms))
	}
	if j.AgentID != "" {
		add("agent", "%s", j.AgentID)
	}
	if j.Node != "" {
		add("on", "%s", j.Node)
	}
	if j.Scaler != "" {
		add("scaler", "%s", j.Scaler)
	}
	if j.CPUMilli > 0 || j.MemBytes > 0 {
		add("asks for", "%s cpu, %s GiB", cpus(j.CPUMilli), gib(j.MemBytes))
	}
	if j.KillMethod != "" {
		add("ended by", "%s", j.KillMethod)
	}
	for _, k := range slices.Sorted(maps.Keys(j.Matrix)) {
		add(k, "%v", j.Matrix[k])
	}
	return out
}

// stepNote is what a list says about a step besides its name and time.
func stepNote(s client.Step) string {
	out := ""
	if s.ExitCode != nil && *s.ExitCode != 0 {
		out = fmt.Sprintf("exit %d", *s.ExitCode)
	}
	if s.Retries > 0 {
		if out != "" {
			out += ", "
		}
		out += count(s.Retries, "retry", "retries")
	}
	return out
}

// stepClass shows a failure that continue-on-error allowed as such.
func stepClass(s client.Step) string {
	if s.Allowed && s.Status == "failed" {
		return "allowed"
	}
	return s.Display.Class
}
