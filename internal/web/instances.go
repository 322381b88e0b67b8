package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
)

// directory answers for the cluster as a whole (cluster.Directory).
type directory interface {
	Self() string
	Overview(ctx context.Context) (cluster.Overview, error)
	Drain(ctx context.Context, r cluster.DrainRequest) (cluster.Draining, error)
	Name(ctx context.Context) (string, error)
}

// periodicJobs are the server's own periodic jobs (periodic.Service).
type periodicJobs interface {
	List(ctx context.Context) ([]periodic.Status, error)
	Trigger(ctx context.Context, name string) (periodic.Outcome, error)
}

func (s *server) instancePages() {
	s.page("GET /instances", access.RunRead, s.instances)
	s.page("GET /instances/live", access.RunRead, s.instancesLive)
	s.write("POST /instances/{instance}/drain", "orchestrator.drain", access.OrchestratorDrain, s.drain, operators)
	s.write("POST /instances/{instance}/resume", "orchestrator.drain", access.OrchestratorDrain, s.drain, operators)
	s.page("GET /instances/jobs", access.RunRead, s.periodic, operators)
	s.write("POST /instances/jobs/{name}/run", "scheduled_job.trigger", access.ScheduledJobTrigger, s.runPeriodic, operators)
}

func instanceTabs(c caller, here string) []tab {
	if operators(c) != "" {
		return nil
	}
	return []tab{{"Instances", "/instances", here == "instances"}, {"Periodic jobs", "/instances/jobs", here == "jobs"}}
}

// member is an instance with what of it the caller may know.
type member struct {
	cluster.Member
	Settings int64 // version of the settings that it applies
	Self     bool  // it answers
}

func (s *server) instances(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.instancesView(r.Context(), c)
	if err != nil {
		return err
	}
	s.render(w, r, instancesPage(v))
	return nil
}

func (s *server) instancesLive(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.live(w, r, func(ctx context.Context) (templ.Component, error) {
		v, err := s.instancesView(ctx, c)
		return instancesBody(v), err
	}, topic{store.TopicLeader, ""}, topic{store.TopicSettings, setting.ClusterScope})
}

func (s *server) instancesView(ctx context.Context, c caller) (instancesView, error) {
	operates := operators(c) == ""
	v := instancesView{
		page: s.frame(c, "instances", "Instances"), Tabs: instanceTabs(c, "instances"), Operates: operates, CanDrain: operates && c.offers("orchestrator.drain", access.OrchestratorDrain),
	}
	o, err := s.Cluster.Overview(ctx)
	if err != nil {
		return v, err
	}
	v.Health, v.Reason, v.Term = o.Health, o.Reason, o.Term
	for _, m := range o.Members {
		x := member{Member: m, Settings: m.SettingsVersion, Self: m.InstanceID == s.Cluster.Self()}
		if x.Self {
			x.Settings = s.Settings.Version()
		}
		if !operates { // how much others have running concerns nobody else
			x.Jobs, x.Agents = 0, 0
		}
		v.Newest = max(v.Newest, x.Settings)
		v.Members = append(v.Members, x)
	}
	if operates && c.Can(access.SecretRead) {
		v.Name, err = s.Cluster.Name(ctx)
	}
	return v, err
}

// headline answers whether the cluster is well.
func (v instancesView) headline() string {
	live, drains := 0, 0
	for _, m := range v.Members {
		if m.Live {
			live++
			if m.Draining {
				drains++
			}
		}
	}
	draining := ""
	if drains > 0 {
		draining = "; " + count(drains, "takes no new work", "take no new work")
	}
	switch {
	case v.Health == cluster.Healthy:
		return count(live, "instance, and all is well", "instances, and all is well") + draining
	case v.Reason != "":
		return upperFirst(v.Reason)
	}
	return "The cluster is " + v.Health
}

// memberState is an instance's state in a word.
func memberState(m member) (class, word string) {
	switch {
	case m.Stopped:
		return "skipped", "stopped"
	case !m.Live:
		return "failed", "lost"
	case m.Draining:
		return "running", "draining"
	case m.ReadyAt == 0:
		return "queued", "starting"
	}
	return "success", "ready"
}

func upperFirst(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (s *server) drain(w http.ResponseWriter, r *http.Request, c caller) error {
	on := strings.HasSuffix(r.URL.Path, "/drain")
	action := "resume"
	if on {
		action = "drain"
	}
	target := r.PathValue("instance")
	_, err := s.Cluster.Drain(r.Context(), cluster.DrainRequest{Target: target, Drain: on})
	s.auditMeta(r, c, "orchestrator.drain", target, err, map[string]any{"action": action, "target": target})
	if err != nil {
		return err
	}
	s.redirect(w, r, "/instances")
	return nil
}

func (s *server) periodic(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.showPeriodic(w, r, c, nil)
}

// ranJob is how a periodic job went that somebody has just run.
type ranJob struct {
	Name string
	periodic.Outcome
}

func (s *server) showPeriodic(w http.ResponseWriter, r *http.Request, c caller, ran *ranJob) error {
	jobs, err := s.Jobs.List(r.Context())
	if err != nil {
		return err
	}
	s.render(w, r, periodicPage(periodicView{
		page: s.frame(c, "instances", "Periodic jobs"), Tabs: instanceTabs(c, "jobs"), Jobs: jobs, Ran: ran, CanRun: c.offers("scheduled_job.trigger", access.ScheduledJobTrigger),
	}))
	return nil
}

// runPeriodic runs a job, waits for it, and says on its page what came of it.
func (s *server) runPeriodic(w http.ResponseWriter, r *http.Request, c caller) error {
	name := r.PathValue("name")
	o, err := s.Jobs.Trigger(r.Context(), name)
	s.auditMeta(r, c, "scheduled_job.trigger", name, err, map[string]any{"ok": err == nil && o.Err == nil})
	if err != nil {
		return err
	}
	return s.showPeriodic(w, r, c, &ranJob{name, o})
}

func (v periodicView) headline() string {
	bad := 0
	for _, j := range v.Jobs {
		if j.Failures > 0 {
			bad++
		}
	}
	if bad > 0 {
		return count(bad, "periodic job fails", "periodic jobs fail")
	}
	return "Every periodic job goes well"
}

func periodicState(j periodic.Status) (class, word string) {
	switch {
	case j.Failures > 0:
		return "failed", "failed " + count(int(j.Failures), "time", "times")
	case j.LastRunAt == 0:
		return "pending", "not run yet"
	}
	return "success", "went well"
}

func (j ranJob) sentence() string {
	ms := j.Took.Milliseconds()
	switch {
	case j.Err != nil:
		return j.Name + " failed after " + durationMs(&ms) + ": " + j.Err.Error()
	case len(j.Report) == 0:
		return j.Name + " went well in " + durationMs(&ms) + "; there was nothing to do."
	}
	return j.Name + " went well in " + durationMs(&ms) + ": " + strings.Join(j.Report, "; ") + "."
}
