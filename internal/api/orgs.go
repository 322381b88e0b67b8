package api

import (
	"context"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/store/db"
)

// orgs keeps organisations (access.Service).
type orgs interface {
	CreateOrg(ctx context.Context, by access.Principal, n access.NewOrg) (string, db.Org, error)
	Orgs(ctx context.Context, by access.Principal) ([]db.Org, error)
}

func (a *API) orgRoutes() {
	handle(a, post("/orgs", "Create an organisation; the token of its first owner is shown once").cluster().created(), right{"token.manage", "org.create"},
		func(ctx context.Context, c *caller, in *struct {
			Body struct {
				ID   string `json:"id" minLength:"1" maxLength:"63" doc:"Slug; part of webhook addresses, and never changed"`
				Name string `json:"name,omitempty" maxLength:"255" doc:"For people"`
			}
		},
		) (client.NewOrg, error) {
			token, row, err := a.d.Orgs.CreateOrg(ctx, c.Principal, access.NewOrg{ID: in.Body.ID, Name: in.Body.Name})
			if err != nil {
				return client.NewOrg{}, err
			}
			c.meta = map[string]any{"organisation": row.ID}
			return client.NewOrg{Org: orgOf(row), Token: token}, nil
		})
	handle(a, get("/orgs", "List the organisations that the token may know of"), right{"run.read", "org.list.read"},
		func(ctx context.Context, c *caller, _ *struct{}) (client.OrgList, error) {
			rows, err := a.d.Orgs.Orgs(ctx, c.Principal)
			out := client.OrgList{Orgs: make([]client.Org, len(rows))}
			for i, row := range rows {
				out.Orgs[i] = orgOf(row)
			}
			return out, err
		})
	handle(a, get("/orgs/{org}", "Show an organisation"), right{"run.read", "org.read"},
		func(ctx context.Context, c *caller, in *struct {
			Org string `path:"org" maxLength:"63"`
		},
		) (client.Org, error) {
			rows, err := a.d.Orgs.Orgs(ctx, c.Principal)
			if err != nil {
				return client.Org{}, err
			}
			for _, row := range rows {
				if row.ID == in.Org {
					return orgOf(row), nil
				}
			}
			return client.Org{}, access.ErrNoOrg // also one of which the token may not know
		})
}

func orgOf(row db.Org) client.Org {
	return client.Org{ID: row.ID, Name: row.Name, CreatedAt: client.TimeOf(row.CreatedAt)}
}
