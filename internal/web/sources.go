package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ingress"
)

// intake is what the dashboard asks of deliveries and sources (ingress.Service).
type intake interface {
	starter
	Check(ctx context.Context, orgID, name string) (ingress.Checked, error)
	Enable(ctx context.Context, orgID, name string, on bool) error
	Replay(ctx context.Context, orgID, id string) error
}

// starter begins work that no delivery asked for.
type starter interface {
	Workflows(ctx context.Context, orgID, source, ref string) (ingress.RefWorkflows, error)
	Start(ctx context.Context, r ingress.StartRequest) (runID string, err error)
	Trigger(ctx context.Context, r ingress.TriggerRequest) (deliveryID string, err error)
	RunSchedule(ctx context.Context, r ingress.RunScheduleRequest) (runID string, err error)
}

// sourceRow is a source and what was last heard of it.
type sourceRow struct {
	client.Source
	read.Activity
}

func (s *server) sources(w http.ResponseWriter, r *http.Request, c caller) error {
	list, err := s.Reads.Sources(r.Context(), c.scope)
	if err != nil {
		return err
	}
	heard, err := s.Reads.Activities(r.Context(), c.scope)
	if err != nil {
		return err
	}
	v := sourcesView{page: s.frame(c, "sources", "Sources")}
	for _, src := range list.Sources {
		v.Sources = append(v.Sources, sourceRow{src, heard[src.ID]})
	}
	s.render(w, r, sourcesPage(v))
	return nil
}

func (s *server) source(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.sourceView(r, c)
	if err != nil {
		return err
	}
	s.render(w, r, sourcePage(v))
	return nil
}

func (s *server) sourceView(r *http.Request, c caller) (sourceView, error) {
	src, err := s.Reads.Source(r.Context(), c.scope, r.PathValue("source"))
	if err != nil {
		return sourceView{}, err
	}
	heard, err := s.Reads.Activities(r.Context(), c.scope)
	return sourceView{
		page: s.frame(c, "sources", "Source "+src.Name), Source: sourceRow{src, heard[src.ID]},
		CanManage: c.offers("source.manage", access.SourceManage), CanTrigger: c.offers("run.trigger", access.RunTrigger),
	}, err
}

// checkSource reaches the source and says on its page what came of it.
func (s *server) checkSource(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.sourceView(r, c)
	if err != nil {
		return err
	}
	found, err := s.Intake.Check(r.Context(), c.OrgID, v.Source.Name)
	s.audit(r, c, "source.check", v.Source.Name, err)
	v.Checked = &checked{Checked: found}
	if err != nil {
		v.Checked.Error = err.Error()
	}
	s.render(w, r, sourcePage(v))
	return nil
}

// checked is what a check has found.
type checked struct {
	ingress.Checked
	Error string
}

func (c checked) sentence() string {
	switch {
	case c.Error != "":
		return c.Error
	case c.DefaultBranch == "":
		return "It can be reached; it has no repository to read."
	case c.Commit.SHA == "":
		return "It can be reached; its repository is empty."
	}
	return "It can be reached: " + c.DefaultBranch + " is at " + short(c.Commit.SHA) + ", " + firstLine(c.Commit.Title) + "."
}

func (s *server) enableSource(w http.ResponseWriter, r *http.Request, c caller) error {
	src, err := s.Reads.Source(r.Context(), c.scope, r.PathValue("source"))
	if err != nil {
		return err
	}
	on := strings.HasSuffix(r.URL.Path, "/enable")
	action := "source.disable"
	if on {
		action = "source.enable"
	}
	err = s.Intake.Enable(r.Context(), c.OrgID, src.Name, on)
	s.audit(r, c, action, src.Name, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/sources/"+src.ID)
	return nil
}

func (s *server) triggerSource(w http.ResponseWriter, r *http.Request, c caller) error {
	src, err := s.Reads.Source(r.Context(), c.scope, r.PathValue("source"))
	if err != nil {
		return err
	}
	id, err := s.Intake.Trigger(r.Context(), ingress.TriggerRequest{
		OrgID: c.OrgID, Source: src.Name, Ref: strings.TrimSpace(r.PostFormValue("ref")), By: c.Label,
	})
	s.audit(r, c, "source.trigger", src.Name, err)
	if err != nil {
		return err
	}
	d, err := s.Reads.Delivery(r.Context(), c.scope, id, false)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/deliveries/"+d.ID)
	return nil
}

// Kinds of sources whose page says how to install a hook in its own way.
const (
	kindLocal   = "local"
	kindGeneric = "generic"
)

func sourceWord(s client.Source) (class, word string) {
	if s.Enabled {
		return "success", "enabled"
	}
	return "skipped", "disabled"
}

// sourcesHeadline says how many there are, and what needs a person.
func (v sourcesView) headline() string {
	off, bad := 0, 0
	for _, s := range v.Sources {
		switch {
		case !s.Enabled:
			off++
		case s.PollError != "":
			bad++
		}
	}
	switch n := len(v.Sources); {
	case n == 0:
		return "No source yet"
	case bad > 0:
		return count(bad, "source cannot be reached", "sources cannot be reached")
	case off > 0:
		return count(n, "source", "sources") + ", " + count(off, "is disabled", "are disabled")
	default:
		return count(n, "source", "sources")
	}
}

// heardOnly leaves out what the page says elsewhere.
func heardOnly(a read.Activity) read.Activity { return read.Activity{Last: a.Last} }
