// Package web is the dashboard: pages drawn on the server over the same reads as the API, kept live by server-sent events. A
// page reads without scripts and loads nothing from anywhere else.
package web

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
)

//go:embed static
var static embed.FS

// sessions signs people in and out.
type sessions interface {
	NewSession(ctx context.Context, bearer string) (session string, err error)
	RedeemLogin(ctx context.Context, secret string) (session string, p access.Principal, err error)
	Session(ctx context.Context, session string) (access.Principal, error)
	EndSession(ctx context.Context, session string) error
}

// actions are what the buttons do.
type actions interface {
	Cancel(context.Context, run.CancelRequest) (run.CancelResult, error)
	Rerun(context.Context, run.RerunRequest) (run.RerunResult, error)
}

// auditor records who pressed what.
type auditor interface {
	Audit(context.Context, access.Entry)
}

// hub tells when something changed.
type hub interface {
	Subscribe(t store.Topic, key string) *store.Subscription
}

// Deps is all that the dashboard needs; every field is required.
type Deps struct {
	Reads    *read.Reads
	Logs     read.LogReader
	Sessions sessions
	Audit    auditor
	Actions  actions
	Intake   intake
	Registry registry
	Events   deadLetterDesk
	Settings settings
	Cluster  directory
	Jobs     periodicJobs
	People   people
	Hub      hub
	Base     string // base path, "" or /kici
	Secure   func(*http.Request) bool
	Log      *slog.Logger
}

type server struct {
	Deps
	mux    *http.ServeMux
	routes []route
}

const (
	cookieName  = "kici_session"
	sessionLife = 12 * time.Hour
	maxForm     = 64 << 10
)

// New returns the dashboard's handler. It serves paths below Base, which the caller has stripped.
func New(d Deps) http.Handler {
	s := newServer(d)
	return s.guard(s.mux)
}

func newServer(d Deps) *server {
	s := &server{Deps: d, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { s.redirect(w, r, "/runs") })
	s.mux.Handle("GET /static/", cached(http.FileServerFS(static)))
	s.mux.HandleFunc("/", s.unknown)
	s.mux.HandleFunc("GET /login", s.loginForm)
	s.mux.HandleFunc("POST /login", s.login)
	s.mux.HandleFunc("GET /login/link/{secret}", s.loginLink)
	s.mux.HandleFunc("POST /logout", s.logout)
	s.page("GET /runs", access.RunRead, s.runs)
	s.page("GET /runs/live", access.RunRead, s.runsLive)
	s.page("GET /runs/{run}", access.RunRead, s.run)
	s.page("GET /runs/{run}/live", access.RunRead, s.runLive)
	s.page("GET /runs/{run}/timeline", access.RunRead, s.record)
	s.page("GET /runs/{run}/timeline/live", access.RunRead, s.recordLive)
	s.page("GET /runs/{run}/jobs/{job}", access.RunRead, s.job)
	s.page("GET /runs/{run}/jobs/{job}/live", access.RunRead, s.jobLive)
	s.page("GET /runs/{run}/jobs/{job}/log/window", access.RunRead, s.logWindow)
	s.page("GET /runs/{run}/jobs/{job}/log/live", access.RunRead, s.logLive)
	s.page("GET /runs/{run}/jobs/{job}/log.txt", access.RunRead, s.logRaw)
	s.write("POST /runs/{run}/cancel", "run.cancel", access.RunCancel, s.cancel)
	s.write("POST /runs/{run}/rerun", "run.rerun", access.RunTrigger, s.rerun)
	s.page("GET /queue", access.RunRead, s.queue)
	s.page("GET /queue/live", access.RunRead, s.queueLive)
	s.page("GET /agents", access.ScalerRead, s.agents)
	s.page("GET /agents/live", access.ScalerRead, s.agentsLive)
	s.page("GET /scalers/live", access.ScalerRead, s.scalersLive)
	s.page("GET /scalers", access.ScalerRead, s.scalers)
	s.page("GET /deliveries/live", access.EventLogRead, s.deliveriesLive)
	s.page("GET /deliveries", access.EventLogRead, s.deliveries)
	s.page("GET /deliveries/{delivery}", access.EventLogRead, s.delivery)
	s.write("POST /deliveries/{delivery}/replay", "delivery.replay", access.RunTrigger, s.replay)
	s.page("GET /sources", access.ContextRead, s.sources)
	s.page("GET /sources/{source}", access.ContextRead, s.source)
	s.write("POST /sources/{source}/check", "source.manage", access.SourceManage, s.checkSource)
	s.write("POST /sources/{source}/enable", "source.manage", access.SourceManage, s.enableSource)
	s.write("POST /sources/{source}/disable", "source.manage", access.SourceManage, s.enableSource)
	s.write("POST /sources/{source}/trigger", "run.trigger", access.RunTrigger, s.triggerSource)
	s.registryPages()
	s.eventPages()
	s.settingPages()
	s.instancePages()
	s.page("GET /access-log", access.AccessLogRead, s.accessLog, unscoped)
	s.page("GET /start", access.RunTrigger, s.startForm, func(c caller) string { return c.forbidden("run.trigger") })
	s.write("POST /start", "run.trigger", access.RunTrigger, s.start)
	s.mux.HandleFunc("GET /session", s.session)
	return s
}

// caller is who asks, on one request.
type caller struct {
	access.Principal
	scope read.Scope
	dead  int64 // dead letters that it may see

	writes map[string]string // what its organisation says of the dashboard's operations
	secure bool              // it came by TLS
}

// route is a mounted page or write.
type route struct {
	pattern   string
	operation string // of a write
	need      access.Permission
	also      []func(caller) string // why the permission is not enough, "" when it is
}

// mount mounts a handler that needs a signed-in principal with a permission that roles have.
func (s *server) mount(at route, h func(http.ResponseWriter, *http.Request, caller) error) {
	if !at.need.Known() {
		panic(at.pattern + " needs a permission that roles have")
	}
	s.routes = append(s.routes, at)
	s.mux.HandleFunc(at.pattern, func(w http.ResponseWriter, r *http.Request) {
		p, err := s.principal(r)
		if err != nil {
			if errors.Is(err, access.ErrUnavailable) {
				s.fail(w, r, page{Title: "Unavailable", Base: s.Base}, http.StatusServiceUnavailable, "Authentication is unavailable; try again in a moment.")
				return
			}
			if strings.HasSuffix(r.URL.Path, "/live") {
				w.WriteHeader(http.StatusUnauthorized) // a stream cannot sign in; its page says that it is cut off
				return
			}
			s.redirect(w, r, "/login?"+nextQuery(comeBack(r)))
			return
		}
		c := caller{
			Principal: p, scope: read.Scope{OrgID: p.OrgID, RoutingKey: p.RoutingKey}, writes: s.Settings.Org(p.OrgID).DashboardWrites, secure: s.Secure(r),
		}
		if why := at.refuses(c); why != "" {
			if at.operation != "" {
				s.Audit.Audit(r.Context(), access.Entry{
					Principal: p, Action: at.operation, Target: r.URL.Path, Source: access.SourceDashboard, Outcome: access.DeniedEntry, RequestID: obs.RequestID(r.Context()), Error: why,
				})
			}
			s.fail(w, r, s.frame(c, "", "Not allowed"), http.StatusForbidden, why)
			return
		}
		c.dead = s.deadLetters(r, c)
		if strings.HasSuffix(r.URL.Path, "/live") {
			ctx, end := context.WithCancel(r.Context())
			defer end()
			go s.whileSignedIn(ctx, r, end)
			r = r.WithContext(ctx)
		}
		if err := h(w, r, c); err != nil {
			s.answer(w, r, c, err)
		}
	})
}

// refuses says why the caller may not, "" when it may.
func (at route) refuses(c caller) string {
	if !c.Can(at.need) {
		return "The role " + string(c.Role) + " lacks the permission " + string(at.need) + "."
	}
	for _, enough := range at.also {
		if why := enough(c); why != "" {
			return why
		}
	}
	return ""
}

// unscoped refuses a token that is limited to one source (ADM-5).
func unscoped(c caller) string {
	if c.Scoped() {
		return "This needs a token that is not limited to one source."
	}
	return ""
}

// operators refuses who does not operate the cluster.
func operators(c caller) string {
	if !c.Operates() {
		return "This concerns the whole cluster, and needs a token of the organisation " + access.DefaultOrg + " that is not limited to one source."
	}
	return ""
}

// sessionEvery is how often an open stream looks whether whoever opened it is still signed in.
const sessionEvery = 10 * time.Second

// whileSignedIn ends a stream with its session; its page then asks /session and says so.
func (s *server) whileSignedIn(ctx context.Context, r *http.Request, end context.CancelFunc) {
	tick := time.NewTicker(sessionEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := s.principal(r); errors.Is(err, access.ErrUnauthenticated) {
			end()
			return
		}
	}
}

// session answers 204 while somebody is signed in and 401 after: a page that is cut off asks which of both it is.
func (s *server) session(w http.ResponseWriter, r *http.Request) {
	status := http.StatusNoContent
	if _, err := s.principal(r); errors.Is(err, access.ErrUnauthenticated) {
		status = http.StatusUnauthorized
	}
	w.WriteHeader(status)
}

// answer turns an error into a page.
func (s *server) answer(w http.ResponseWriter, r *http.Request, c caller, err error) {
	if r.Context().Err() != nil {
		return
	}
	status, message, known := problemOf(err)
	if !known {
		s.Log.Error("dashboard", "path", r.URL.Path, "err", err)
	}
	s.fail(w, r, s.frame(c, "", http.StatusText(status)), status, message)
}

// unknown answers what no route takes.
func (s *server) unknown(w http.ResponseWriter, r *http.Request) {
	p := page{Base: s.Base}
	if who, err := s.principal(r); err == nil {
		p = s.frame(caller{Principal: who}, "", "")
	}
	p.Title = "Not found"
	s.fail(w, r, p, http.StatusNotFound, "There is no page at this address.")
}

func (s *server) fail(w http.ResponseWriter, r *http.Request, p page, status int, message string) {
	w.WriteHeader(status)
	s.render(w, r, errorPage(p, p.Title, message))
}

func (s *server) render(w http.ResponseWriter, r *http.Request, c templ.Component) {
	if err := c.Render(r.Context(), w); err != nil && r.Context().Err() == nil {
		s.Log.Warn("draw page", "path", r.URL.Path, "err", err)
	}
}

func (s *server) frame(c caller, nav, title string) page {
	return page{Title: title, Nav: nav, Base: s.Base, User: c.Label, SignedIn: true, Places: placesOf(c), Dead: c.dead}
}

// guard sets the headers of every answer and refuses writes that another site's page sent.
func (s *server) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	checked := origins.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // "no-referrer" would make the Origin of our own forms "null"
		if !strings.HasPrefix(r.URL.Path, "/static/") {
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Cache-Control", "no-store")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		checked.ServeHTTP(w, r)
	})
}

// cached lets browsers keep the static files and ask each time whether they are still those of this build.
func cached(next http.Handler) http.Handler {
	h := sha256.New()
	_ = fs.WalkDir(static, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		_, _ = h.Write(data)
		return err
	})
	tag := `"` + hex.EncodeToString(h.Sum(nil)[:12]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		next.ServeHTTP(w, r)
	})
}

func (s *server) redirect(w http.ResponseWriter, r *http.Request, path string) {
	http.Redirect(w, r, s.Base+path, http.StatusSeeOther)
}
