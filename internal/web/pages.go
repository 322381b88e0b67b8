package web

import (
	"net/http"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
)

func (s *server) cancel(w http.ResponseWriter, r *http.Request, c caller) error {
	detail, err := s.Reads.RunHead(r.Context(), c.scope, r.PathValue("run"))
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
	detail, err := s.Reads.RunHead(r.Context(), c.scope, r.PathValue("run"))
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
	s.auditMeta(r, c, action, target, err, nil)
}

func (s *server) auditMeta(r *http.Request, c caller, action, target string, err error, meta map[string]any) {
	e := access.Entry{Principal: c.Principal, Action: action, Target: target, Source: access.SourceDashboard, Outcome: access.Allowed, RequestID: obs.RequestID(r.Context()), Meta: meta}
	if err != nil {
		e.Outcome, e.Error = access.Failed, err.Error()
	}
	s.Audit.Audit(r.Context(), e)
}
