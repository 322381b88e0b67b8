package web

import (
	"context"
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/store"
)

func (s *server) runs(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.runsView(r.Context(), c, filterOf(r.URL.Query()))
	if err != nil {
		return err
	}
	sources, err := s.Reads.Sources(r.Context(), c.scope)
	if err != nil {
		return err
	}
	for _, src := range sources.Sources {
		if src.Repo != "" {
			v.Repos = append(v.Repos, src.Repo)
		}
	}
	s.render(w, r, runsPage(v))
	return nil
}

func (s *server) runsView(ctx context.Context, c caller, f runFilter) (runsView, error) {
	list, err := s.Reads.Runs(ctx, c.scope, read.RunFilter{
		Statuses: f.statuses(), Workflow: f.Workflow, Repo: f.Repo, Branch: f.Branch, Actor: f.Actor, Event: f.Event, Text: f.Text,
		Cursor: f.Cursor, Limit: 40,
	})
	if err != nil {
		return runsView{}, err
	}
	now, err := s.Reads.Overview(ctx, c.scope)
	p := s.frame(c, "runs", "Runs")
	p.Query = f.Text
	return runsView{
		page: p, Filter: f, Now: now, Runs: list.Runs, Next: list.NextCursor, Live: f.Cursor == "", CanStart: c.offers("run.trigger", access.RunTrigger),
	}, err
}

// runsLive draws heading and table again; the form between them is the reader's.
func (s *server) runsLive(w http.ResponseWriter, r *http.Request, c caller) error {
	f := filterOf(r.URL.Query())
	return s.liveParts(w, r, func(ctx context.Context) (head, body templ.Component, err error) {
		v, err := s.runsView(ctx, c, f)
		return runsHead(v), runsTable(v), err
	}, topic{store.TopicRunList, c.OrgID})
}

// liveParts is live for a page of two elements.
func (s *server) liveParts(w http.ResponseWriter, r *http.Request, parts func(context.Context) (head, body templ.Component, err error), topics ...topic) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	st := openStream(w)
	var subs []*store.Subscription
	for _, t := range topics {
		subs = append(subs, s.Hub.Subscribe(t.topic, t.key))
	}
	return s.quietly(r, s.follow(ctx, st, subs, func() error {
		head, body, err := parts(ctx)
		if err != nil {
			return err
		}
		if err := st.send(ctx, "head", head); err != nil {
			return err
		}
		return st.send(ctx, "body", body)
	}))
}

func (s *server) agents(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.agentsView(r.Context(), c, agentFilterOf(r))
	if err != nil {
		return err
	}
	s.render(w, r, agentsPage(v))
	return nil
}

func agentFilterOf(r *http.Request) agentFilter {
	q := r.URL.Query()
	return agentFilter{All: q.Get("all") != "", Scaler: q.Get("scaler"), Cursor: q.Get("cursor")}
}

func (s *server) agentsView(ctx context.Context, c caller, f agentFilter) (agentsView, error) {
	v := agentsView{page: s.frame(c, "agents", "Agents"), Filter: f}
	list, err := s.Reads.Agents(ctx, c.scope, read.AgentFilter{All: f.All, Scaler: f.Scaler, Cursor: f.Cursor, Limit: 100})
	if err != nil {
		return v, err
	}
	v.Agents, v.Next = list.Agents, list.NextCursor
	sc, err := s.Reads.Scalers(ctx, c.scope)
	v.Scalers = sc.Scalers
	return v, err
}

func (s *server) agentsLive(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.live(w, r, func(ctx context.Context) (templ.Component, error) {
		v, err := s.agentsView(ctx, c, agentFilterOf(r))
		return agentsBody(v), err
	}, topic{store.TopicAgents, ""}, topic{store.TopicAssignments, ""})
}

func (s *server) scalers(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.scalersView(r.Context(), c)
	if err != nil {
		return err
	}
	s.render(w, r, scalersPage(v))
	return nil
}

func (s *server) scalersView(ctx context.Context, c caller) (scalersView, error) {
	list, err := s.Reads.Scalers(ctx, c.scope)
	return scalersView{page: s.frame(c, "scalers", "Scalers"), Scalers: list.Scalers}, err
}

func (s *server) scalersLive(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.live(w, r, func(ctx context.Context) (templ.Component, error) {
		v, err := s.scalersView(ctx, c)
		return scalersBody(v), err
	}, topic{store.TopicScalers, ""}, topic{store.TopicAgents, ""})
}

func (s *server) deliveries(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.deliveriesView(r.Context(), c, deliveryFilterOf(r.URL.Query()))
	if err != nil {
		return err
	}
	if c.Can(access.ContextRead) {
		list, err := s.Reads.Sources(r.Context(), c.scope)
		if err != nil {
			return err
		}
		for _, src := range list.Sources {
			v.Sources = append(v.Sources, src.Name)
		}
	}
	if f := v.Filter.Source; f != "" && !slices.Contains(v.Sources, f) {
		v.Sources = append(v.Sources, f)
	}
	s.render(w, r, deliveriesPage(v))
	return nil
}

func (s *server) deliveriesView(ctx context.Context, c caller, f deliveryFilter) (deliveriesView, error) {
	list, err := s.Reads.Deliveries(ctx, c.scope, read.DeliveryFilter{
		Source: f.Source, Status: f.Status, Event: f.Event, Cursor: f.Cursor, Limit: 50,
	})
	return deliveriesView{
		page: s.frame(c, "deliveries", "Deliveries"), Filter: f, Deliveries: list.Deliveries, Next: list.NextCursor, Live: f.Cursor == "",
	}, err
}

// deliveriesLive draws heading and table again; the form between them is the reader's.
func (s *server) deliveriesLive(w http.ResponseWriter, r *http.Request, c caller) error {
	f := deliveryFilterOf(r.URL.Query())
	return s.liveParts(w, r, func(ctx context.Context) (head, body templ.Component, err error) {
		v, err := s.deliveriesView(ctx, c, f)
		return deliveriesHead(v), deliveriesTable(v), err
	}, topic{store.TopicDeliveries, ""}, topic{store.TopicRunList, c.OrgID})
}
