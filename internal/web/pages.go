package web

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/run"
)

// choice is which run, job, step and line a page shows.
type choice struct {
	run, job string
	step     int
	at       int64
}

func choiceOf(r *http.Request) choice {
	ch := choice{run: r.PathValue("run"), job: r.PathValue("job"), step: allSteps}
	q := r.URL.Query()
	if ch.job == "" {
		ch.job = q.Get("job")
	}
	if n, err := strconv.Atoi(q.Get("step")); err == nil && n >= 0 {
		ch.step = n
	}
	if n, err := strconv.ParseInt(q.Get("at"), 10, 64); err == nil && ch.step != allSteps {
		ch.at = max(n, 0)
	}
	return ch
}

func (s *server) run(w http.ResponseWriter, r *http.Request, c caller) error {
	ch := choiceOf(r)
	v, err := s.runView(r.Context(), c, ch)
	if err != nil {
		return err
	}
	if v.Job != nil {
		if v.Log, err = s.log(r.Context(), *v.Job, ch.step, ch.at); err != nil {
			return err
		}
	}
	s.render(w, r, runPage(v))
	return nil
}

func (s *server) runView(ctx context.Context, c caller, ch choice) (runView, error) {
	detail, err := s.Reads.Run(ctx, c.scope, ch.run)
	if err != nil {
		return runView{}, err
	}
	v := runView{
		page: s.frame(c, "runs", fmt.Sprintf("%s #%d · %s", detail.Workflow, detail.Number, detail.Repo)),
		Run:  detail, Step: ch.step, CanCancel: c.Can(access.RunCancel), CanRerun: c.Can(access.RunTrigger),
	}
	open := openJob(detail.Jobs, ch.job)
	if open != "" {
		job, err := s.Reads.Job(ctx, c.scope, open)
		if err != nil {
			return runView{}, err
		}
		v.Job = &job
		if job.StartedAt == nil && job.FinishedAt == nil {
			why, err := s.Reads.Why(ctx, c.scope, open)
			if err != nil {
				return runView{}, err
			}
			v.Why = &why
		}
	}
	v.Graph = graphOf(detail.Jobs, open, time.Now().UnixMilli())
	return v, nil
}

// openJob chooses the job to show: the one asked for, else a failed one, one at work, one allowed to fail, the last that ran.
func openJob(jobs []client.Job, asked string) string {
	best, rank := "", -1
	for _, j := range jobs {
		r := map[string]int{"failed": 4, "running": 3, "allowed": 2, "success": 1}[j.Display.Class]
		if j.ID == asked {
			return j.ID
		}
		if r > rank || r == rank && r == 1 {
			best, rank = j.ID, r
		}
	}
	return best
}

func (s *server) cancel(w http.ResponseWriter, r *http.Request, c caller) error {
	detail, err := s.Reads.Run(r.Context(), c.scope, r.PathValue("run"))
	if err != nil {
		return err
	}
	_, err = s.Actions.Cancel(r.Context(), run.CancelRequest{
		OrgID: c.OrgID, RoutingKey: c.RoutingKey, RunID: detail.ID, By: c.Label, Reason: "cancelled in the dashboard", Force: r.PostFormValue("force") == "true",
	})
	s.audit(r, c, "run.cancel", detail.ID, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/runs/"+detail.ID)
	return nil
}

func (s *server) rerun(w http.ResponseWriter, r *http.Request, c caller) error {
	detail, err := s.Reads.Run(r.Context(), c.scope, r.PathValue("run"))
	if err != nil {
		return err
	}
	res, err := s.Actions.Rerun(r.Context(), run.RerunRequest{
		OrgID: c.OrgID, RoutingKey: c.RoutingKey, RunID: detail.ID, By: c.Label, RequestID: r.PostFormValue("key"), FailedOnly: r.PostFormValue("failed") == "true",
	})
	s.audit(r, c, "run.rerun", detail.ID, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/runs/"+res.RunID)
	return nil
}

func (s *server) audit(r *http.Request, c caller, action, target string, err error) {
	e := access.Entry{Principal: c.Principal, Action: action, Target: target, Source: access.SourceDashboard, Outcome: access.Allowed}
	if err != nil {
		e.Outcome, e.Error = access.Failed, err.Error()
	}
	s.Audit.Audit(r.Context(), e)
}
