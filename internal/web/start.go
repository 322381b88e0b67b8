package web

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// choices are the steps that were taken on the way to a start; they travel in the query.
type choices struct{ Source, Ref, Workflow string }

func choicesOf(get func(string) string) choices {
	cut := func(name string) string {
		v := strings.TrimSpace(get(name))
		return strings.ToValidUTF8(v[:min(len(v), 1000)], "")
	}
	return choices{cut("source"), cut("ref"), cut("workflow")}
}

func (c choices) query() string {
	q := url.Values{}
	for name, v := range map[string]string{"source": c.Source, "ref": c.Ref, "workflow": c.Workflow} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return q.Encode()
}

func (c choices) of(workflow string) choices { c.Workflow = workflow; return c }

func (s *server) startForm(w http.ResponseWriter, r *http.Request, c caller) error {
	v, _, err := s.startView(r, c, choicesOf(r.URL.Query().Get))
	if err != nil {
		return err
	}
	if v.Problem != nil {
		w.WriteHeader(v.status)
	}
	s.render(w, r, startPage(v))
	return nil
}

// startView goes as far as the choices reach. What is wrong with them is on the page, not an error.
func (s *server) startView(r *http.Request, c caller, ch choices) (startView, ingress.RefWorkflows, error) {
	v := startView{page: s.frame(c, "", "Start a workflow"), Choices: ch}
	list, err := s.Reads.Sources(r.Context(), c.scope)
	if err != nil {
		return v, ingress.RefWorkflows{}, err
	}
	for _, src := range list.Sources {
		if src.Repo != "" && src.Enabled {
			v.Sources = append(v.Sources, src)
		}
	}
	if ch.Source == "" {
		return v, ingress.RefWorkflows{}, nil
	}
	src, err := s.Reads.Source(r.Context(), c.scope, ch.Source)
	if err != nil {
		return v, ingress.RefWorkflows{}, err
	}
	v.Choices.Source = src.Name
	at, err := s.Intake.Workflows(r.Context(), c.OrgID, src.Name, ch.Ref)
	if err != nil {
		return v, at, v.wrong(err)
	}
	found := read.Workflows(at)
	v.At = &found
	for i := range found.Workflows {
		if found.Workflows[i].Name == ch.Workflow {
			v.Workflow = &found.Workflows[i]
		}
	}
	switch {
	case ch.Workflow != "" && v.Workflow == nil:
		return v, at, v.wrong(&ingress.RequestError{Message: "there is no workflow " + ch.Workflow + " at " + v.where()})
	case v.Workflow != nil && !v.Workflow.Startable:
		v.Workflow = nil
		return v, at, v.wrong(&ingress.RequestError{Message: "workflow " + ch.Workflow + " has no workflow_dispatch trigger, so it cannot be started by hand"})
	case v.Workflow != nil:
		v.Key = "web-" + rand.Text()
		v.Given = map[string]string{}
		for _, in := range v.Workflow.Inputs {
			v.Given[in.Name] = printValue(in.Default)
		}
	}
	return v, at, nil
}

// problem is what is wrong with a choice, for the page.
type problem struct {
	Message string
	Details []string
}

// wrong notes what the reader can mend; other errors stay errors.
func (v *startView) wrong(err error) error {
	var re *ingress.RequestError
	switch {
	case errors.As(err, &re):
		v.Problem, v.status = &problem{re.Message, re.Details}, http.StatusBadRequest
	case errors.Is(err, ingress.ErrDisabled):
		v.Problem, v.status = &problem{Message: "the source is disabled"}, http.StatusConflict
	case errors.Is(err, source.ErrUnreachable), errors.Is(err, source.ErrDenied), errors.Is(err, source.ErrMisconfigured):
		v.Problem, v.status = &problem{Message: err.Error()}, http.StatusServiceUnavailable
	default:
		return err
	}
	return nil
}

const inputPrefix = "in."

// start validates the form as the server does for everybody, says beside each field what is wrong with it, and starts.
func (s *server) start(w http.ResponseWriter, r *http.Request, c caller) error {
	if err := r.ParseForm(); err != nil {
		s.fail(w, r, s.frame(c, "", "Too much"), http.StatusRequestEntityTooLarge, "The form is larger than 64 KiB; use kici run start for such inputs.")
		return nil //nolint:nilerr // the page says it
	}
	ch := choicesOf(r.PostForm.Get)
	v, at, err := s.startView(r, c, ch)
	if err != nil {
		return err
	}
	if v.Workflow == nil {
		if v.Problem == nil {
			v.Problem, v.status = &problem{Message: "choose a source and a workflow"}, http.StatusBadRequest
		}
		return s.again(w, r, v)
	}
	v.Key = r.PostForm.Get("key")
	trigger := triggerOf(at.File, v.Workflow.Name)
	given := givenInputs(v.Workflow.Inputs, r.PostForm)
	for _, in := range v.Workflow.Inputs {
		v.Given[in.Name] = r.PostForm.Get(inputPrefix + in.Name)
	}
	if _, problems := workflow.ResolveInputs(trigger, given); len(problems) > 0 {
		v.Faults = map[string]string{}
		for _, p := range problems {
			name := strings.TrimPrefix(p.Field, "inputs.")
			v.Faults[name] = faultText(name, p.Message)
		}
		v.Problem, v.status = &problem{Message: count(len(v.Faults), "input has to be mended", "inputs have to be mended")}, http.StatusBadRequest
		return s.again(w, r, v)
	}
	id, err := s.Intake.Start(r.Context(), ingress.StartRequest{
		OrgID: c.OrgID, Source: v.Choices.Source, Workflow: v.Workflow.Name, Ref: ch.Ref, Inputs: given, By: c.Label, RequestID: v.Key,
	})
	e := access.Entry{Principal: c.Principal, Action: "run.trigger", Target: v.Choices.Source + "/" + v.Workflow.Name, Source: access.SourceDashboard, Outcome: access.Allowed, RequestID: obs.RequestID(r.Context())}
	if err != nil {
		e.Outcome, e.Error = access.Failed, err.Error()
	}
	s.Audit.Audit(r.Context(), e)
	if err != nil {
		if err := v.wrong(err); err != nil {
			return err
		}
		return s.again(w, r, v)
	}
	s.redirect(w, r, "/runs/"+id)
	return nil
}

// again shows the form with what is wrong with it.
func (s *server) again(w http.ResponseWriter, r *http.Request, v startView) error {
	w.WriteHeader(v.status)
	s.render(w, r, startPage(v))
	return nil
}

func triggerOf(file *lock.File, name string) *lock.Trigger {
	for i := range file.Workflows {
		if file.Workflows[i].Name == name {
			return workflow.DispatchTrigger(&file.Workflows[i])
		}
	}
	return &lock.Trigger{}
}

// givenInputs are the inputs that a form gives. A field left empty is not given, so its default holds; a box that is not ticked
// is false.
func givenInputs(inputs []client.Input, form url.Values) map[string]any {
	out := map[string]any{}
	for _, in := range inputs {
		v := form.Get(inputPrefix + in.Name)
		switch {
		case in.Type == workflow.InputBoolean:
			out[in.Name] = v == "true"
		case v != "":
			out[in.Name] = v
		}
	}
	return out
}

// faultText is a problem beside its field, which names the input already.
func faultText(name, message string) string {
	return strings.TrimPrefix(message, "input "+name+" ")
}

// printValue is a default as a form shows it.
func printValue(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// hint says below a field what it takes.
func hint(in client.Input) string {
	var parts []string
	switch in.Type {
	case workflow.InputInteger:
		parts = append(parts, "a whole number")
	case workflow.InputNumber:
		parts = append(parts, "a number")
	}
	if in.Min != nil {
		parts = append(parts, "at least "+printValue(*in.Min))
	}
	if in.Max != nil {
		parts = append(parts, "at most "+printValue(*in.Max))
	}
	if in.Pattern != "" {
		parts = append(parts, "matches "+in.Pattern)
	}
	if d := printValue(in.Default); d != "" && in.Type != workflow.InputBoolean {
		parts = append(parts, "empty is "+d)
	}
	return strings.Join(parts, ", ")
}

// where names the commit that the workflows are read from.
func (v startView) where() string {
	if v.At == nil {
		return v.Choices.Ref
	}
	for _, prefix := range []string{"refs/heads/", "refs/tags/"} {
		if name, ok := strings.CutPrefix(v.At.Ref, prefix); ok {
			return name
		}
	}
	return short(v.At.SHA)
}

// needsLine says what a job waits for.
func needsLine(needs []string) string {
	if len(needs) == 0 {
		return ""
	}
	return "after " + strings.Join(needs, ", ")
}

// describedBy ties a field to what stands below it.
func (v startView) describedBy(in client.Input) templ.Attributes {
	a := templ.Attributes{"aria-describedby": "in-" + in.Name + "-says"}
	if v.Faults[in.Name] != "" {
		a["aria-invalid"] = "true"
	}
	return a
}

// inputKind is what a browser needs to know of a field; what it lets pass the server checks all the same.
func inputKind(in client.Input) templ.Attributes {
	if in.Type == workflow.InputNumber || in.Type == workflow.InputInteger {
		return templ.Attributes{"inputmode": "decimal"}
	}
	return templ.Attributes{}
}
