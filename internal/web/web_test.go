package web

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// doors is a fake of access: a session and a token per role, one login link, and a list of what was recorded.
type doors struct {
	down  bool
	scope string // routing key of every session
	org   string // of every session, "" is readtest.Org

	mu      sync.Mutex
	link    string
	ended   []string
	entries []access.Entry
}

func (d *doors) Session(_ context.Context, s string) (access.Principal, error) {
	switch {
	case d.down:
		return access.Principal{}, access.ErrUnavailable
	case !access.Role(s).Valid():
		return access.Principal{}, access.ErrUnauthenticated
	}
	return access.Principal{TokenID: s, OrgID: cmp.Or(d.org, readtest.Org), RoutingKey: d.scope, Label: s + " <i>", Role: access.Role(s)}, nil
}

func (d *doors) NewSession(_ context.Context, bearer string) (string, error) {
	if role, ok := strings.CutPrefix(bearer, "token-"); ok && access.Role(role).Valid() {
		return role, nil
	}
	return "", access.ErrUnauthenticated
}

func (d *doors) RedeemLogin(_ context.Context, secret string) (string, access.Principal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if secret == "" || secret != d.link {
		return "", access.Principal{}, access.ErrUnauthenticated
	}
	d.link = ""
	return "owner", access.Principal{}, nil
}

func (d *doors) EndSession(_ context.Context, s string) error {
	d.ended = append(d.ended, s)
	return nil
}

func (d *doors) Audit(_ context.Context, e access.Entry) { d.entries = append(d.entries, e) }

// buttons is a fake of the run room.
type buttons struct {
	err     error
	cancels []run.CancelRequest
	reruns  []run.RerunRequest
}

func (b *buttons) Cancel(_ context.Context, r run.CancelRequest) (run.CancelResult, error) {
	b.cancels = append(b.cancels, r)
	return run.CancelResult{}, b.err
}

func (b *buttons) Rerun(_ context.Context, r run.RerunRequest) (run.RerunResult, error) {
	b.reruns = append(b.reruns, r)
	return run.RerunResult{RunID: "again"}, b.err
}

// memoryLogs is a fake of the log storage.
type memoryLogs struct {
	mu    sync.Mutex
	lines map[string][]string // by attempt and step
}

func (m *memoryLogs) write(attempt, step int, lines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := fmt.Sprint(attempt, "/", step)
	m.lines[k] = append(m.lines[k], lines...)
}

func (m *memoryLogs) ReadLines(_ context.Context, ref read.LogRef, step int, cursor string, limit int) (out []client.LogLine, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := 0
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "c%d", &at); err != nil {
			return nil, "", fmt.Errorf("%w: cursor %q", read.ErrInvalid, cursor)
		}
	}
	all := m.lines[fmt.Sprint(ref.Attempt, "/", step)]
	for i := at; i < len(all) && len(out) < limit; i++ {
		out = append(out, client.LogLine{N: int64(i + 1), Msg: all[i]})
	}
	return out, fmt.Sprintf("c%d", at+len(out)), nil
}

func (m *memoryLogs) SeekLine(_ context.Context, ref read.LogRef, step int, line int64) (string, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(int64(len(m.lines[fmt.Sprint(ref.Attempt, "/", step)])), max(line-1, 0))
	return fmt.Sprintf("c%d", n), n, nil
}

func (m *memoryLogs) SearchLines(ctx context.Context, ref read.LogRef, step int, q read.LogQuery) (read.LogFound, error) {
	all, end, err := m.ReadLines(ctx, ref, step, "", 1<<30)
	at := 0
	if q.Cursor != "" {
		_, _ = fmt.Sscanf(q.Cursor, "c%d", &at)
	}
	if q.Backward {
		all, end = all[:at], "c0"
		slices.Reverse(all)
	} else {
		all = all[at:]
	}
	out := read.LogFound{Next: end, Done: true}
	for _, l := range all {
		if !strings.Contains(logs.Fold(logs.Visible(l.Msg)), logs.Fold(q.Text)) {
			continue
		}
		if out.Lines = append(out.Lines, l); len(out.Lines) == q.Limit {
			out.Done, out.Next = false, fmt.Sprintf("c%d", l.N)
			break
		}
	}
	out.Searched = int64(len(all))
	return out, err
}

func newSettings(t *testing.T, st *store.Store, env service.Env) *setting.Service {
	t.Helper()
	s, err := setting.New(setting.Deps{Store: st, Env: env, Log: obs.Discard()})
	if err == nil {
		err = s.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// site is a dashboard over a real store.
type site struct {
	t        *testing.T
	world    *readtest.World
	doors    *doors
	buttons  *buttons
	intake   *fakeIntake
	regs     *fakeRegistry
	desk     *fakeDesk
	jobs     *fakeJobs
	logs     *memoryLogs
	handler  http.Handler
	routes   []route
	settings *setting.Service
}

func newSite(t *testing.T, base string) *site {
	t.Helper()
	st := storetest.SQLite(t)
	s := &site{t: t, world: readtest.New(t, st), doors: &doors{link: "once"}, buttons: &buttons{}, intake: &fakeIntake{}, regs: &fakeRegistry{}, desk: &fakeDesk{}, jobs: &fakeJobs{}, logs: &memoryLogs{lines: map[string][]string{}}}
	s.settings = newSettings(t, st, s.world.Env)
	server := newServer(Deps{
		Reads: read.New(st, read.Config{Now: time.Now, BaseURL: func() string { return "http://ci" + base }, Logs: s.logs}),
		Logs:  s.logs, Sessions: s.doors, Audit: s.doors, Actions: s.buttons, Intake: s.intake, Registry: s.regs, Events: s.desk, Settings: s.settings,
		Cluster: cluster.NewDirectory(st, readtest.Node), Jobs: s.jobs, People: access.New(st, s.world.Env, obs.Discard()), Hub: st, Base: base,
		Secure: func(r *http.Request) bool { return r.TLS != nil }, Log: obs.Discard(),
	})
	s.handler, s.routes = http.StripPrefix(base, server.guard(server.mux)), server.routes
	return s
}

// ask sends a request as a role ("" = not signed in). A POST says that it comes from this site unless edit says otherwise.
func (s *site) ask(role, method, path string, form url.Values, edit ...func(*http.Request)) *http.Response {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://example.com")
	}
	if role != "" {
		r.AddCookie(&http.Cookie{Name: cookieName, Value: role})
	}
	for _, f := range edit {
		f(r)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryPageNeedsItsPermission(t *testing.T) {
	s := newSite(t, "")
	id := s.world.Run(readtest.NewRun{})
	s.permissions(map[string]access.Permission{
		"/runs": access.RunRead, "/runs/" + id: access.RunRead, "/queue": access.RunRead, "/agents": access.ScalerRead, "/scalers": access.ScalerRead,
		"/deliveries": access.EventLogRead, "POST /runs/" + id + "/cancel": access.RunCancel, "POST /runs/" + id + "/rerun": access.RunTrigger,
	})
}

// permissions asks routes with no session and as every role; a write also as the page of another site would.
func (s *site) permissions(routes map[string]access.Permission) {
	t := s.t
	t.Helper()
	for route, need := range routes {
		method, path, ok := strings.Cut(route, " ")
		if !ok {
			method, path = http.MethodGet, method
		}
		if r := s.ask("", method, path, nil); r.StatusCode != http.StatusSeeOther || !strings.HasPrefix(r.Header.Get("Location"), "/login?next=%2F") {
			t.Errorf("%s %s without a session: %d %s", method, path, r.StatusCode, r.Header.Get("Location"))
		}
		for _, role := range []access.Role{access.Owner, access.Admin, access.Auditor} {
			r := s.ask(string(role), method, path, nil)
			can := (access.Principal{Role: role}).Can(need)
			if can == (r.StatusCode == http.StatusForbidden) {
				t.Errorf("%s %s as %s: %d, may %s: %v", method, path, role, r.StatusCode, need, can)
			}
			if text := body(t, r); !can && !strings.Contains(text, string(need)) {
				t.Errorf("%s as %s: the refusal does not name %s", path, role, need)
			}
		}
		if method == http.MethodPost {
			evil := func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }
			if r := s.ask("owner", method, path, nil, evil); r.StatusCode != http.StatusForbidden {
				t.Errorf("%s from another site: %d", path, r.StatusCode)
			}
		}
	}
}

func TestStreamsDoNotRedirect(t *testing.T) {
	s := newSite(t, "")
	for _, path := range []string{"/runs/live", "/queue/live", "/runs/x/live", "/runs/x/jobs/y/log/live"} {
		if r := s.ask("", http.MethodGet, path, nil); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

func TestAnActionThatNeedsASessionComesBackToItsPage(t *testing.T) {
	s := newSite(t, "/ci")
	r := s.ask("", http.MethodPost, "/ci/runs/7/cancel", nil)
	if got := r.Header.Get("Location"); got != "/ci/login?next=%2Fruns%2F7" {
		t.Error(got)
	}
}

func TestWritesFromAnotherSiteAreRefused(t *testing.T) {
	s := newSite(t, "")
	id := s.world.Run(readtest.NewRun{})
	for name, edit := range map[string]func(*http.Request){
		"another origin": func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"null origin":    func(r *http.Request) { r.Header.Set("Origin", "null") },
		"fetch metadata": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"same site":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
	} {
		for _, path := range []string{"/runs/" + id + "/cancel", "/runs/" + id + "/rerun", "/login", "/logout"} {
			if r := s.ask("owner", http.MethodPost, path, nil, edit); r.StatusCode != http.StatusForbidden {
				t.Errorf("%s to %s: %d", name, path, r.StatusCode)
			}
		}
	}
	if len(s.buttons.cancels)+len(s.buttons.reruns)+len(s.doors.ended) > 0 {
		t.Error("something was done all the same")
	}
	// A browser sends no Sec-Fetch-Site to plain http on a local network, but our own Origin: Referrer-Policy must let it.
	if r := s.ask("owner", http.MethodPost, "/runs/"+id+"/cancel", nil); r.StatusCode != http.StatusSeeOther || len(s.buttons.cancels) != 1 {
		t.Errorf("our own form: %d", r.StatusCode)
	} else if p := r.Header.Get("Referrer-Policy"); p != "same-origin" {
		t.Errorf("Referrer-Policy %q", p)
	}
}

func TestButtonsSayWhoAndAreRecorded(t *testing.T) {
	s := newSite(t, "")
	id := s.world.Run(readtest.NewRun{})
	s.ask("owner", http.MethodPost, "/runs/"+id+"/cancel", url.Values{"force": {"true"}})
	r := s.ask("owner", http.MethodPost, "/runs/"+id+"/rerun", url.Values{"key": {"web-1"}, "failed": {"true"}})
	if got := r.Header.Get("Location"); got != "/runs/again" {
		t.Error(got)
	}
	c, re := s.buttons.cancels[0], s.buttons.reruns[0]
	if c.RunID != id || !c.Force || c.By != "owner <i>" || re.RequestID != "web-1" || !re.FailedOnly || re.OrgID != readtest.Org {
		t.Errorf("%+v %+v", c, re)
	}
	s.buttons.err = run.ErrTerminal
	if r := s.ask("owner", http.MethodPost, "/runs/"+id+"/cancel", nil); r.StatusCode != http.StatusConflict {
		t.Error(r.StatusCode)
	}
	var said []string
	for _, e := range s.doors.entries {
		said = append(said, e.Action+" "+e.Outcome)
	}
	if !slices.Equal(said, []string{"run.cancel allowed", "run.rerun allowed", "run.cancel error"}) {
		t.Error(said)
	}
}

func TestSignIn(t *testing.T) {
	s := newSite(t, "/ci")
	if r := s.ask("", http.MethodPost, "/ci/login?next=%2Fqueue", url.Values{"token": {"wrong"}}); r.StatusCode != http.StatusUnauthorized || len(r.Cookies()) > 0 {
		t.Errorf("a wrong token: %d, %v", r.StatusCode, r.Cookies())
	} else if text := body(t, r); !strings.Contains(text, "next=%2Fqueue") || !strings.Contains(text, "not valid") {
		t.Error("the form forgets where to go on, or why")
	}
	r := s.ask("", http.MethodPost, "/ci/login?next=%2Fqueue", url.Values{"token": {" token-owner\n"}})
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/ci/queue" {
		t.Errorf("%d %s", r.StatusCode, r.Header.Get("Location"))
	}
	c := r.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/ci/" || c.Secure || c.MaxAge <= 0 || c.Domain != "" {
		t.Errorf("cookie %+v", c)
	}
	r = s.ask("", http.MethodPost, "https://example.com/ci/login", url.Values{"token": {"token-owner"}}, func(r *http.Request) { r.Header.Set("Origin", "https://example.com") })
	if len(r.Cookies()) != 1 || !r.Cookies()[0].Secure {
		t.Error("the cookie of an https page is not marked so")
	}
	r = s.ask("owner", http.MethodPost, "/ci/logout", nil)
	if c := r.Cookies()[0]; c.MaxAge >= 0 || c.Path != "/ci/" || !slices.Equal(s.doors.ended, []string{"owner"}) {
		t.Errorf("after logout: %+v, ended %v", c, s.doors.ended)
	}
}

func TestLoginLinkWorksOnce(t *testing.T) {
	s := newSite(t, "")
	r := s.ask("", http.MethodGet, "/login/link/once?next=%2Fruns%2F7%3Fstep%3D1", nil)
	text := body(t, r)
	if r.StatusCode != http.StatusOK || len(r.Cookies()) != 1 || !strings.Contains(text, `content="0; url=/runs/7?step=1"`) {
		t.Errorf("%d %v\n%s", r.StatusCode, r.Cookies(), text)
	}
	r = s.ask("", http.MethodGet, "/login/link/once?next=%2F%2Fevil", nil)
	if text := body(t, r); r.StatusCode != http.StatusUnauthorized || len(r.Cookies()) > 0 || strings.Contains(text, "evil") {
		t.Errorf("the second time: %d %v", r.StatusCode, r.Cookies())
	}
}

func TestErrorsArePages(t *testing.T) {
	s := newSite(t, "")
	for path, want := range map[string]int{"/nothing": 404, "/runs/none": 404, "/deliveries/none": 404, "/runs/x/jobs/y/log.txt": 404} {
		r := s.ask("owner", http.MethodGet, path, nil)
		if text := body(t, r); r.StatusCode != want || !strings.Contains(text, "<nav") || !strings.Contains(r.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d, %s", path, r.StatusCode, text)
		}
	}
	if text := body(t, s.ask("", http.MethodGet, "/nothing", nil)); strings.Contains(text, "<nav") {
		t.Error("somebody who is not signed in sees the navigation")
	}
	s.doors.down = true
	if r := s.ask("owner", http.MethodGet, "/runs", nil); r.StatusCode != http.StatusServiceUnavailable {
		t.Error(r.StatusCode)
	}
}

func TestStaticFilesAreAskedForAgainByTheirTag(t *testing.T) {
	s := newSite(t, "")
	r := s.ask("", http.MethodGet, "/static/kici.css", nil)
	tag := r.Header.Get("ETag")
	if r.StatusCode != http.StatusOK || tag == "" || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/css") {
		t.Fatalf("%d %q %s", r.StatusCode, tag, r.Header.Get("Content-Type"))
	}
	r = s.ask("", http.MethodGet, "/static/kici.css", nil, func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
	if r.StatusCode != http.StatusNotModified {
		t.Error(r.StatusCode)
	}
}
