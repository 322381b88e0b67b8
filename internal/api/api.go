// Package api is the HTTP API: thin handlers over the services, and over read for everything that is shown. Every route is
// declared with the permission that it needs and the action under which it is recorded; there is no other way to add one
// (D4). Errors are {"error", "details"} (D22). The OpenAPI document and its page come from the same declarations.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/diagnose"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// authenticator knows who asks and records what they did (access.Service).
type authenticator interface {
	Authenticate(ctx context.Context, bearer string) (access.Principal, error)
	Act(ctx context.Context, p access.Principal, org string) (access.Principal, error)
	Audit(ctx context.Context, e access.Entry)
}

// tokens manages credentials (access.Service).
type tokens interface {
	CreateToken(ctx context.Context, by access.Principal, n access.NewToken) (string, db.AdminToken, error)
	ListTokens(ctx context.Context, orgID string) ([]db.AdminToken, error)
	RevokeToken(ctx context.Context, by access.Principal, id string) error
	CreateLoginLink(ctx context.Context, tokenID string) (string, error)
}

// agentTokens manages the credentials of agents (access.Service).
type agentTokens interface {
	CreateAgentToken(ctx context.Context, by access.Principal, labels, mandatory []string) (string, db.AgentToken, error)
	ListAgentTokens(ctx context.Context, orgID, tokenType string) ([]db.AgentToken, error)
	RevokeAgentToken(ctx context.Context, by access.Principal, id string) (db.AgentToken, error)
}

// runs ends and repeats runs (run.Service).
type runs interface {
	Cancel(ctx context.Context, req run.CancelRequest) (run.CancelResult, error)
	Rerun(ctx context.Context, req run.RerunRequest) (run.RerunResult, error)
	ClearQueue(ctx context.Context, req run.ClearRequest) (run.Cleared, error)
	PurgeStale(ctx context.Context, req run.PurgeRequest) ([]run.Standing, error)
}

// secrets keeps the organisation's secrets (secret.Service).
type secrets interface {
	Set(ctx context.Context, org, scope, key, value string) error
	List(ctx context.Context, org string) ([]secret.Info, error)
	Delete(ctx context.Context, org, scope, key string) error
}

// hub tells when something changed (store.Store).
type hub interface {
	Subscribe(t store.Topic, key string) *store.Subscription
}

// Deps is all that the API needs; every field is required.
type Deps struct {
	Reads       *read.Reads
	Auth        authenticator
	Tokens      tokens
	AgentTokens agentTokens
	Runs        runs
	Start       starter
	Sources     sources
	Origins     origins
	Secrets     secrets
	Events      events

	Registrations registrations
	Registrar     registrar

	Settings settings
	Orgs     orgs
	Cluster  instances
	Jobs     scheduledJobs
	Node     node

	Hub     hub
	Checks  []diagnose.Check // of the server itself
	BaseURL func() string    // of this server as people reach it, without a trailing slash
	Version string
	Env     service.Env
	Log     *slog.Logger
}

// Limits of the API.
const (
	maxBody    = 26214400 // ADM-8
	maxStreams = 2000     // open at once
)

// API is the handler. It serves everything below /api/v1 except what agents and workers use, and /openapi.json, /docs and
// /version.
type API struct {
	d       Deps
	log     *slog.Logger
	mux     *http.ServeMux
	huma    huma.API
	routes  []Route
	streams chan struct{}
	rare    rare
}

// Route describes a mounted route, for the test that walks them all.
type Route struct {
	Method, Path string
	Permission   access.Permission
	Action       Action
	Unscoped     bool // ADM-5 "U"
	Cluster      bool // needs a token of the operating organisation
}

var replaceErrors sync.Once

// New returns the API.
func New(d Deps) *API {
	replaceErrors.Do(func() { huma.NewError = newError })
	c := huma.DefaultConfig("kici", d.Version)
	c.Info.Description = "The API of a kici server. Send \"Authorization: Bearer <token>\". Who operates the cluster acts in another organisation with \"" + OrgHeader + ": <organisation>\"."
	c.CreateHooks = nil // no $schema in answers
	c.DocsPath, c.SchemasPath, c.OpenAPIPath = "", "", ""
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	a := &API{d: d, log: d.Log.With("component", "api"), mux: http.NewServeMux(), streams: make(chan struct{}, maxStreams)}
	c.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[client.Time](), reflect.TypeFor[time.Time]())
	a.huma = humago.New(a.mux, c)
	a.runRoutes()
	a.jobRoutes()
	a.scalerRoutes()
	a.queueRoutes()
	a.checkRoutes()
	a.clusterRoutes()
	a.sourceRoutes()
	a.deliveryRoutes()
	a.registrationRoutes()
	a.eventRoutes()
	a.secretRoutes()
	a.tokenRoutes()
	a.diagnoseRoutes()
	a.settingRoutes()
	a.orgRoutes()
	a.instanceRoutes()
	a.scheduledJobRoutes()
	a.openRoutes()
	tidy(a.huma.OpenAPI())
	return a
}

// Routes are the routes that need a token.
func (a *API) Routes() []Route { return a.routes }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	r = r.WithContext(access.WithAddress(r.Context(), r.RemoteAddr))
	if obs.RequestID(r.Context()) != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	obs.RequestIDs(a.d.Env.NewID, a.mux).ServeHTTP(w, r)
}

// tidy takes huma's validation status out of the document: validation answers 400 (D22).
func tidy(doc *huma.OpenAPI) {
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete, item.Patch} {
			if op != nil {
				delete(op.Responses, "422")
			}
		}
	}
}

// openRoutes need no token.
func (a *API) openRoutes() {
	caps := client.Capabilities{
		OrchestratorVersion: a.d.Version, ProtocolVersion: client.ProtocolVersion, MinProtocolVersion: client.MinProtocolVersion,
		Features: []string{"runs", "sse", "idempotency-key", "login-links"},
	}
	a.mux.HandleFunc("GET /api/v1/capabilities", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, caps) })
	a.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": a.d.Version})
	})
	a.mux.HandleFunc("GET /openapi.json", a.openAPI)
	a.mux.HandleFunc("GET /docs", a.docs)
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, client.Error{Message: "there is no " + r.Method + " " + r.URL.Path + " here; see /docs"})
	})
}
