package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/store/db"
)

// people keeps admin tokens and organisations (access.Service).
type people interface {
	ListTokens(ctx context.Context, orgID string) ([]db.AdminToken, error)
	CreateToken(ctx context.Context, by access.Principal, n access.NewToken) (string, db.AdminToken, error)
	RevokeToken(ctx context.Context, by access.Principal, id string) error
	Orgs(ctx context.Context, by access.Principal) ([]db.Org, error)
	CreateOrg(ctx context.Context, by access.Principal, n access.NewOrg) (string, db.Org, error)
}

// given is what a form held that has to be mended, and what is wrong with it.
type given struct {
	Values map[string]string
	Says   string
}

func (g given) of(name string) string { return g.Values[name] }

func (s *server) tokens(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.showTokens(w, r, c, "", given{})
}

// showTokens lists the tokens; secret is one that was just made, and is never shown again.
func (s *server) showTokens(w http.ResponseWriter, r *http.Request, c caller, secret string, g given) error {
	rows, err := s.People.ListTokens(r.Context(), c.OrgID)
	if err != nil {
		return err
	}
	v := tokensView{page: s.frame(c, "settings", "Tokens"), Tabs: settingTabs(c, "tokens"), Tokens: rows, Secret: secret, Given: g, Own: c.TokenID, CanManage: c.offers("token.manage", access.TokenManage)}
	list, err := s.Reads.Sources(r.Context(), c.scope)
	if err != nil {
		return err
	}
	v.Sources = list.Sources
	if g.Says != "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	s.render(w, r, tokensPage(v))
	return nil
}

// lives are how long a token that is made here may live, in days.
var lives = []struct{ days, word string }{{"", "for ever"}, {"30", "30 days"}, {"90", "90 days"}, {"365", "a year"}}

func (s *server) createToken(w http.ResponseWriter, r *http.Request, c caller) error {
	g := given{Values: map[string]string{}}
	for _, name := range []string{"label", "role", "source", "days"} {
		g.Values[name] = strings.TrimSpace(r.PostFormValue(name))
	}
	n := access.NewToken{Label: g.of("label"), Role: access.Role(g.of("role")), RoutingKey: g.of("source")}
	for _, l := range lives {
		if days, err := time.ParseDuration(l.days + "h"); err == nil && l.days == g.of("days") {
			n.ExpiresAt = time.Now().Add(24 * days).UnixMilli()
		}
	}
	if n.RoutingKey != "" {
		if _, err := s.Reads.Source(r.Context(), c.scope, n.RoutingKey); err != nil {
			return err
		}
	}
	secret, row, err := s.People.CreateToken(r.Context(), c.Principal, n)
	s.audit(r, c, "token.create", row.ID, err)
	if errors.Is(err, access.ErrInvalid) {
		g.Says = words(err)
		return s.showTokens(w, r, c, "", g)
	}
	if err != nil {
		return err
	}
	return s.showTokens(w, r, c, secret, given{})
}

// words are an error's own without the class that it begins with.
func words(err error) string {
	return upperFirst(strings.TrimPrefix(err.Error(), access.ErrInvalid.Error()+": ")) + "."
}

func (s *server) revokeToken(w http.ResponseWriter, r *http.Request, c caller) error {
	id := r.PathValue("token")
	err := s.People.RevokeToken(r.Context(), c.Principal, id)
	s.audit(r, c, "token.revoke", id, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/settings/tokens")
	return nil
}

func (v tokensView) headline() string {
	n := 0
	for _, t := range v.Tokens {
		if class, _ := tokenState(t); class == "success" {
			n++
		}
	}
	return count(n, "token is good", "tokens are good")
}

func tokenState(t db.AdminToken) (class, word string) {
	switch {
	case t.RevokedAt.Valid:
		return "cancelled", "revoked"
	case t.ExpiresAt.Valid && t.ExpiresAt.Int64 <= time.Now().UnixMilli():
		return "skipped", "expired"
	}
	return "success", "good"
}

func (s *server) orgs(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.showOrgs(w, r, c, "", given{})
}

func (s *server) showOrgs(w http.ResponseWriter, r *http.Request, c caller, secret string, g given) error {
	rows, err := s.People.Orgs(r.Context(), c.Principal)
	if err != nil {
		return err
	}
	if g.Says != "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	s.render(w, r, orgsPage(orgsView{
		page: s.frame(c, "settings", "Organisations"), Tabs: settingTabs(c, "orgs"), Orgs: rows, Secret: secret, Given: g, CanCreate: c.offers("org.create", access.TokenManage),
	}))
	return nil
}

func (s *server) createOrg(w http.ResponseWriter, r *http.Request, c caller) error {
	g := given{Values: map[string]string{"id": strings.TrimSpace(r.PostFormValue("id")), "name": strings.TrimSpace(r.PostFormValue("name"))}}
	secret, row, err := s.People.CreateOrg(r.Context(), c.Principal, access.NewOrg{ID: g.of("id"), Name: g.of("name")})
	s.auditMeta(r, c, "org.create", row.ID, err, map[string]any{"organisation": g.of("id")})
	switch {
	case errors.Is(err, access.ErrInvalid):
		g.Says = words(err)
	case errors.Is(err, access.ErrOrgIs):
		g.Says = upperFirst(err.Error()) + "."
	case err != nil:
		return err
	}
	return s.showOrgs(w, r, c, secret, g)
}
