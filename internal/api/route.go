package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/obs"
)

// Action is the name under which a request is recorded in the access log (AUD-3).
type Action string

// endpoint says where a route is and how it behaves.
type endpoint struct {
	method, path, summary string
	status                int                       // of success; 0 is 200
	unscoped              bool                      // needs a token that sees every source (ADM-5, "U")
	operators             bool                      // concerns the whole cluster: needs an unscoped token of the operating organisation
	rate                  float64                   // share of allowed requests that is recorded (AUD-2); 0 is all
	rare                  bool                      // recorded at most once per actor and minute instead
	answers               map[string]*huma.Response // by status, where the handler's type does not tell
}

// OrgHeader names the organisation that an operator of the cluster acts in, when it is not that of the token.
const OrgHeader = "X-Kici-Org"

const (
	admin      = "/api/v1/admin"
	answerTime = 60 * time.Second // for everything but streams
)

func get(path, summary string) endpoint {
	return endpoint{method: http.MethodGet, path: admin + path, summary: summary, rate: 0.1}
}

func post(path, summary string) endpoint {
	return endpoint{method: http.MethodPost, path: admin + path, summary: summary}
}

func put(path, summary string) endpoint {
	return endpoint{method: http.MethodPut, path: admin + path, summary: summary}
}

func del(path, summary string) endpoint {
	return endpoint{method: http.MethodDelete, path: admin + path, summary: summary}
}

func (e endpoint) sampled(rate float64) endpoint { e.rate = rate; return e }
func (e endpoint) all() endpoint                 { e.rate = 0; return e }
func (e endpoint) seldom() endpoint              { e.rate, e.rare = 0, true; return e }
func (e endpoint) global() endpoint              { e.unscoped = true; return e }
func (e endpoint) cluster() endpoint             { e.unscoped, e.operators = true, true; return e }
func (e endpoint) at(path string) endpoint       { e.path = path; return e }
func (e endpoint) created() endpoint             { e.status = http.StatusCreated; return e }

// right is what a route demands and is recorded as. Both parts are required.
type right struct {
	permission access.Permission
	action     Action
}

// caller is who asks, on one request.
type caller struct {
	access.Principal
	read.Scope
	err  error          // what the handler answered, for the access log
	meta map[string]any // what the handler wants recorded; never secrets (AUD-6)
}

// note adds to what is recorded of the request: names and ids, never secrets. Say it before the deed, so that a refusal says it too.
func (c *caller) note(key string, value any) {
	if c.meta == nil {
		c.meta = map[string]any{}
	}
	c.meta[key] = value
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// body wraps an answer the way huma wants it.
type body struct{ Body any }

// handle mounts a route. It cannot be called without a permission and an action; an empty one is a mistake of the program.
func handle[I, O any](a *API, e endpoint, r right, h func(ctx context.Context, c *caller, in *I) (O, error)) {
	// huma's handler is compiled anew for each pair of an input and an output: 20 KB of program. So all answers are of one type
	// there, and the schema of this one is given.
	status := cmp.Or(e.status, http.StatusOK)
	answer := &huma.Response{Description: http.StatusText(status), Content: map[string]*huma.MediaType{
		"application/json": {Schema: a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[O](), true, operationID(e)+"Response")},
	}}
	e.answers = map[string]*huma.Response{strconv.Itoa(status): answer}
	register(a, e, r, func(ctx context.Context, in *I) (*body, error) {
		c := callerOf(ctx)
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		out, err := h(ctx, c, in)
		if err != nil {
			return nil, a.fail(ctx, c, err)
		}
		return &body{out}, nil
	})
}

// register is handle for handlers that answer in their own way.
func register[I, O any](a *API, e endpoint, r right, h func(context.Context, *I) (*O, error)) {
	if !r.permission.Known() || r.action == "" {
		panic("route " + e.method + " " + e.path + " needs a permission that roles have, and an action")
	}
	a.routes = append(a.routes, Route{Method: e.method, Path: e.path, Permission: r.permission, Action: r.action, Unscoped: e.unscoped, Cluster: e.operators})
	op := huma.Operation{
		OperationID: operationID(e), Method: e.method, Path: e.path, Summary: e.summary, DefaultStatus: e.status,
		Description:  e.needs(r),
		MaxBodyBytes: maxBody, BodyReadTimeout: 60 * time.Second, Tags: []string{tag(e.path)},
		Security:    []map[string][]string{{"token": {}}},
		Errors:      []int{400, 401, 403, 404},
		Middlewares: huma.Middlewares{a.guard(e, r)},
		Responses:   e.answers,
	}
	if e.status == 0 {
		op.DefaultStatus = http.StatusOK
	}
	huma.Register(a.huma, op, h)
}

// needs is the right in words.
func (e endpoint) needs(r right) string {
	text := "Needs `" + string(r.permission) + "`"
	switch {
	case e.operators:
		text += ", with a token of the operating organisation (`" + access.DefaultOrg + "`) that is not limited to a source"
	case e.unscoped:
		text += ", with a token that is not limited to a source"
	}
	return text + "."
}

func operationID(e endpoint) string {
	words := []string{strings.ToLower(e.method)}
	for p := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(e.path, admin), "/api/v1"), "/") {
		if p = strings.Trim(p, "{}"); p != "" {
			words = append(words, p)
		}
	}
	return strings.Join(words, "-")
}

func tag(path string) string {
	p := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, admin+"/"), "/api/v1/"), "/")
	return p[0]
}

// guard authenticates, checks permission and scope, and records the request when it has ended. Nothing of the request's body
// is read before that.
func (a *API) guard(e endpoint, r right) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		p, err := a.authenticate(ctx)
		if err != nil {
			if errors.Is(err, access.ErrUnavailable) {
				a.log.Error("authenticate", "err", err, "request_id", obs.RequestID(ctx.Context()))
			}
			ctx.SetHeader("WWW-Authenticate", `Bearer realm="kici"`)
			a.refuse(ctx, err)
			return
		}
		p, err = a.d.Auth.Act(ctx.Context(), p, ctx.Header(OrgHeader))
		c := &caller{Principal: p, Scope: read.Scope{OrgID: p.OrgID, RoutingKey: p.RoutingKey}}
		if err == nil {
			err = allowed(p, e, r)
		}
		if err != nil {
			c.err = err
			a.refuse(ctx, err)
			a.record(ctx, e, r, c)
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
		a.record(ctx, e, r, c)
	}
}

func (a *API) authenticate(ctx huma.Context) (access.Principal, error) {
	h := ctx.Header("Authorization")
	if h == "" {
		return access.Principal{}, &failure{Message: "Missing authorization", status: http.StatusUnauthorized}
	}
	scheme, token, _ := strings.Cut(h, " ")
	if !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(token) == "" {
		return access.Principal{}, &failure{Message: "Invalid or expired token", status: http.StatusUnauthorized}
	}
	p, err := a.d.Auth.Authenticate(ctx.Context(), strings.TrimSpace(token))
	if errors.Is(err, access.ErrUnauthenticated) {
		err = &failure{Message: "Invalid or expired token", status: http.StatusUnauthorized}
	}
	return p, err
}

func allowed(p access.Principal, e endpoint, r right) error {
	if err := p.Require(r.permission); err != nil {
		return &failure{Message: err.Error(), status: http.StatusForbidden}
	}
	if e.operators && !p.Operates() {
		return access.ErrForOps
	}
	if e.unscoped && p.Scoped() {
		return &failure{Message: "this needs a token that is not limited to one source", status: http.StatusForbidden}
	}
	return nil
}

func (a *API) refuse(ctx huma.Context, err error) {
	_, w := humago.Unwrap(ctx)
	writeFailure(w, failureOf(err))
}

// fail turns a handler's error into the answer, and logs it when it is ours.
func (a *API) fail(ctx context.Context, c *caller, err error) error {
	c.err = err
	f := failureOf(err)
	if f.status >= 500 && ctx.Err() == nil {
		a.log.Error("request failed", "err", err, "request_id", obs.RequestID(ctx))
	}
	return f
}

// record writes the access log entry of a request.
func (a *API) record(ctx huma.Context, e endpoint, r right, c *caller) {
	entry := access.Entry{
		Principal: c.Principal, Action: string(r.action), Target: target(ctx, e), Source: access.SourceHTTP,
		Outcome: access.Allowed, RequestID: obs.RequestID(ctx.Context()), Rate: e.rate, Meta: c.meta,
	}
	status := ctx.Status()
	if c.err != nil {
		status = statusOf(c.err)
		entry.Error = failureOf(c.err).Message
	}
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		entry.Outcome = access.DeniedEntry
	case status >= 400:
		entry.Outcome = access.Failed
	case e.rare && !a.rare.first(c.TokenID+" "+string(r.action), a.d.Env.Now()):
		return
	}
	if strings.HasPrefix(ctx.Header("User-Agent"), "kici/") {
		entry.Source = access.SourceCLI
	}
	a.d.Auth.Audit(ctx.Context(), entry)
}

// target is the values of the path's parameters.
func target(ctx huma.Context, e endpoint) string {
	var parts []string
	for p := range strings.SplitSeq(e.path, "/") {
		if strings.HasPrefix(p, "{") {
			parts = append(parts, ctx.Param(strings.Trim(p, "{}")))
		}
	}
	return strings.Join(parts, "/")
}

// rare remembers what was recorded in the last minute.
type rare struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

const rareKept = 10_000

func (r *rare) first(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.seen[key]; ok && now.Sub(t) < time.Minute {
		return false
	}
	if r.seen == nil || len(r.seen) >= rareKept {
		r.seen = map[string]time.Time{}
	}
	r.seen[key] = now
	return true
}
