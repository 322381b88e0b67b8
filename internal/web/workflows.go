package web

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ingress"
)

// registry turns registered workflows on and off (registration.Service).
type registry interface {
	SetDisabled(ctx context.Context, orgID, id string, disabled bool) error
}

func (s *server) registryPages() {
	s.page("GET /workflows", access.ContextRead, s.workflows)
	s.page("GET /workflows/{registration}", access.ContextRead, s.workflow)
	s.write("POST /workflows/{registration}/enable", "registration.update", access.ContextUpdate, s.enableWorkflow)
	s.write("POST /workflows/{registration}/disable", "registration.update", access.ContextUpdate, s.enableWorkflow)
	s.write("POST /workflows/{registration}/run", "run.trigger", access.RunTrigger, s.runWorkflow)
	s.page("GET /schedules", access.ContextRead, s.schedules)
}

// workflowFilter is which registered workflows the list shows; it travels in the query.
type workflowFilter struct{ Repo, Workflow, Trigger, State, Cursor string }

func workflowFilterOf(q url.Values) workflowFilter {
	f := filterOf(q) // the same bounds
	get := func(name string) string {
		v := q.Get(name)
		return strings.ToValidUTF8(v[:min(len(v), maxFilter)], "")
	}
	return workflowFilter{f.Repo, f.Workflow, get("trigger"), get("state"), f.Cursor}
}

func (f workflowFilter) query() string {
	return queryOf("repo", f.Repo, "workflow", f.Workflow, "trigger", f.Trigger, "state", f.State, "cursor", f.Cursor)
}

func (f workflowFilter) of(state string) workflowFilter {
	f.State, f.Cursor = state, ""
	return f
}

func (f workflowFilter) at(cursor string) workflowFilter {
	f.Cursor = cursor
	return f
}

func (f workflowFilter) any() bool { return f.Repo+f.Workflow+f.Trigger+f.State != "" }

// queryOf makes a query of names and values; those that are empty are left out.
func queryOf(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q.Encode()
}

// workflowStates are the tabs above the list.
var workflowStates = []struct{ state, word string }{{"", "All"}, {"enabled", "Enabled"}, {"disabled", "Disabled"}, {globalOnly, "Global"}}

// globalOnly is the tab of those that follow other repositories.
const globalOnly = "global"

// triggerTypes are those that the form offers, as the lock stores them.
var triggerTypes = []string{
	"push", "tag", "pr", "comment", "dispatch", "schedule", "generic_webhook", "kici_event", "workflow_complete", "job_complete", "workflows_failed_batch", "lifecycle",
}

func (s *server) workflows(w http.ResponseWriter, r *http.Request, c caller) error {
	f := workflowFilterOf(r.URL.Query())
	ask := read.RegistrationFilter{Repo: f.Repo, Workflow: f.Workflow, Trigger: f.Trigger, State: f.State, Cursor: f.Cursor, Limit: 50}
	if f.State == globalOnly {
		ask.State, ask.Global = "", true
	}
	list, err := s.Reads.Registrations(r.Context(), c.scope, ask)
	if err != nil {
		return err
	}
	s.render(w, r, workflowsPage(workflowsView{page: s.frame(c, "workflows", "Workflows"), Filter: f, List: list}))
	return nil
}

func (v workflowsView) headline() string {
	switch {
	case v.List.Total == 0 && !v.Filter.any():
		return "No workflow is registered yet"
	case v.Filter.any():
		return count(int(v.List.Total), "workflow matches", "workflows match")
	}
	return count(int(v.List.Total), "workflow is registered", "workflows are registered")
}

func (s *server) workflow(w http.ResponseWriter, r *http.Request, c caller) error {
	d, err := s.Reads.Registration(r.Context(), c.scope, r.PathValue("registration"))
	if err != nil {
		return err
	}
	s.render(w, r, workflowPage(workflowView{
		page: s.frame(c, "workflows", "Workflow "+d.Workflow), Workflow: d, Key: actionKey(), CanRun: c.offers("run.trigger", access.RunTrigger), CanSwitch: c.offers("registration.update", access.ContextUpdate),
	}))
	return nil
}

// enableWorkflow turns a workflow on or off.
func (s *server) enableWorkflow(w http.ResponseWriter, r *http.Request, c caller) error {
	d, err := s.Reads.Registration(r.Context(), c.scope, r.PathValue("registration"))
	if err != nil {
		return err
	}
	on := strings.HasSuffix(r.URL.Path, "/enable")
	action := "registration.disable"
	if on {
		action = "registration.enable"
	}
	err = s.Registry.SetDisabled(r.Context(), c.OrgID, d.ID, !on)
	s.audit(r, c, action, d.ID, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/workflows/"+d.ID)
	return nil
}

// runWorkflow starts a scheduled workflow as if it had just come due.
func (s *server) runWorkflow(w http.ResponseWriter, r *http.Request, c caller) error {
	d, err := s.Reads.Registration(r.Context(), c.scope, r.PathValue("registration"))
	if err != nil {
		return err
	}
	id, err := s.Intake.RunSchedule(r.Context(), ingress.RunScheduleRequest{OrgID: c.OrgID, RegistrationID: d.ID, By: c.Label, RequestID: r.PostFormValue("key")})
	s.audit(r, c, "run.manual_schedule", d.ID, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/runs/"+id)
	return nil
}

// startable reports whether somebody may start it by hand, with inputs.
func (v workflowView) startable() bool {
	return v.Workflow.Source != "" && slices.ContainsFunc(v.Workflow.On, func(t client.RegistrationTrigger) bool { return t.Type == "dispatch" && t.Filters["manual"] == "true" })
}

func workflowWord(disabled bool) (class, word string) {
	if disabled {
		return "skipped", "disabled"
	}
	return "success", "enabled"
}

// triggerLines are a trigger's filters as a person writes them: name and value.
func triggerLines(t client.RegistrationTrigger) (out [][2]string) {
	for _, kv := range pairs(t.Filters) {
		switch kv[0] {
		case "manual", "timezone":
			continue // said by the trigger's name and beside the expression
		case "cronExpression":
			kv[0], kv[1] = "cron", kv[1]+" "+cmp.Or(t.Filters["timezone"], "UTC")
		case "accumulateFor":
			kv[0] = "accumulate for (ms)"
		}
		out = append(out, kv)
	}
	return out
}

// triggerTitle is a trigger's name in workflow files.
func triggerTitle(t client.RegistrationTrigger) string {
	if t.Type == "dispatch" && t.Filters["manual"] != "true" {
		return "repository_dispatch"
	}
	return triggerName(t.Type)
}

func (s *server) schedules(w http.ResponseWriter, r *http.Request, c caller) error {
	q := r.URL.Query()
	f := workflowFilterOf(q)
	list, err := s.Reads.Schedules(r.Context(), c.scope, read.ScheduleFilter{Repo: f.Repo, Workflow: f.Workflow, Cursor: f.Cursor, Limit: 50})
	if err != nil {
		return err
	}
	s.render(w, r, schedulesPage(schedulesView{
		page: s.frame(c, "schedules", "Schedules"), Filter: f, List: list, Key: actionKey(), CanRun: c.offers("run.trigger", access.RunTrigger),
	}))
	return nil
}

// headline says what fires next, and what cannot.
func (v schedulesView) headline() string {
	broken, next := 0, (*client.Schedule)(nil)
	for i := range v.List.Schedules {
		s := &v.List.Schedules[i]
		if s.Error != "" {
			broken++
		}
		if len(s.Next) > 0 && (next == nil || s.Next[0].Before(next.Next[0].Time)) {
			next = s
		}
	}
	switch {
	case len(v.List.Schedules) == 0 && v.Filter.Repo+v.Filter.Workflow != "":
		return "No schedule matches"
	case len(v.List.Schedules) == 0:
		return "Nothing is scheduled"
	case broken > 0:
		return count(broken, "schedule cannot fire", "schedules cannot fire")
	case next == nil:
		return "Every schedule is disabled"
	case v.Filter.Cursor != "":
		return "Schedules"
	}
	return "Next is " + next.Workflow + ", " + ahead(next.Next[0])
}

// local is an instant in a schedule's own zone.
func local(t client.Time, zone string) string {
	at := t.UTC()
	if l, err := time.LoadLocation(zone); err == nil && zone != "" {
		at = t.In(l)
	}
	return at.Format("Mon 2 Jan 15:04")
}

func scheduleWord(s client.Schedule) (class, word string) {
	switch {
	case s.Error != "":
		return "failed", "cannot fire"
	case s.Disabled:
		return "skipped", "disabled"
	}
	return "success", "on"
}
