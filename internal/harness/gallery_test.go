package harness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	directory "github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/web"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// gallery is the dashboard over a fixed set of data under a clock that stands still: a page looks the same whenever it is
// drawn. The rows are made by the rooms that make them otherwise, in virtual time. A browser's connection keeps the bubble
// from ever being idle, which is what stops the clock.
type gallery struct {
	addr  string
	now   time.Time
	pages map[string]string // name → path
	door  *openDoor
	in    *fixedIntake
}

// openGallery serves until the test ends.
func openGallery(t *testing.T) gallery {
	t.Helper()
	var once sync.Once
	ready, stop, done := make(chan gallery, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC)))
			p := newPainting(t)
			p.paint()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Error(err)
				return
			}
			door, in := &openDoor{}, &fixedIntake{run: strings.TrimPrefix(p.pages["run"], "/runs/")}
			server := &http.Server{Handler: p.dashboard(door, in), ReadHeaderTimeout: time.Hour}
			served := make(chan error, 1)
			go func() { served <- server.Serve(listener) }()
			ready <- gallery{addr: listener.Addr().String(), now: time.Now(), pages: p.pages, door: door, in: in}
			<-stop
			_ = server.Close()
			<-served
		})
	}()
	t.Cleanup(func() {
		once.Do(func() { close(stop) })
		<-done
	})
	select {
	case g := <-ready:
		return g
	case <-done:
		t.Fatal("the gallery was not opened")
		return gallery{}
	}
}

func (p *painting) dashboard(door *openDoor, in *fixedIntake) http.Handler {
	return web.New(web.Deps{
		Reads: read.New(p.Store, read.Config{Now: time.Now, BaseURL: func() string { return "https://ci.example.org" }, Logs: p.logs}),
		Logs:  p.logs, Sessions: door, Audit: door, Actions: p.Runs, Intake: in, Registry: in, Events: in, Hub: p.Store,
		Settings: p.settings, Cluster: directory.NewDirectory(p.Store, "build-1"), Jobs: fixedJobs{time.Now()}, People: access.New(p.Store, p.Env, obs.Discard()),
		Secure: func(*http.Request) bool { return false }, Log: obs.Discard(),
	})
}

// fixedIntake has one ref with three workflows, and starts nothing.
type fixedIntake struct {
	run string // that every start makes

	mu    sync.Mutex
	calls []string
}

func (f *fixedIntake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fixedIntake) noted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// openDoor lets everybody in until it is shut.
type openDoor struct{ shut atomic.Bool }

func (d *openDoor) Session(context.Context, string) (access.Principal, error) {
	if d.shut.Load() {
		return access.Principal{}, access.ErrUnauthenticated
	}
	return access.Principal{TokenID: "t", OrgID: readtest.Org, Label: "ada", Role: access.Owner}, nil
}
func (*openDoor) NewSession(context.Context, string) (string, error) { return "s", nil }
func (*openDoor) RedeemLogin(context.Context, string) (string, access.Principal, error) {
	return "s", access.Principal{}, nil
}
func (*openDoor) EndSession(context.Context, string) error { return nil }
func (*openDoor) Audit(context.Context, access.Entry)      {}

func (f *fixedIntake) Replay(_ context.Context, _, id string) error {
	f.note("replay %s", id)
	return nil
}

func (f *fixedIntake) Start(_ context.Context, r ingress.StartRequest) (string, error) {
	f.note("start %s of %s: %v", r.Workflow, r.Source, r.Inputs)
	return f.run, nil
}

func (f *fixedIntake) RunSchedule(_ context.Context, r ingress.RunScheduleRequest) (string, error) {
	f.note("run schedule %s", r.RegistrationID)
	return f.run, nil
}

func (f *fixedIntake) SetDisabled(_ context.Context, _, id string, off bool) error {
	f.note("disable %s: %v", id, off)
	return nil
}

func (f *fixedIntake) RetryDead(_ context.Context, _, id string) error {
	f.note("retry %s", id)
	return nil
}

func (f *fixedIntake) DiscardDead(_ context.Context, _, id string) error {
	f.note("discard %s", id)
	return nil
}

func (*fixedIntake) Trigger(context.Context, ingress.TriggerRequest) (string, error) {
	return "", ingress.ErrShed
}

func (*fixedIntake) Check(context.Context, string, string) (ingress.Checked, error) {
	return ingress.Checked{DefaultBranch: "main"}, nil
}
func (*fixedIntake) Enable(context.Context, string, string, bool) error { return nil }

func (*fixedIntake) Workflows(_ context.Context, _, source, _ string) (ingress.RefWorkflows, error) {
	least, most := 1.0, 20.0
	linux := lock.Selector{Labels: []string{"linux"}}
	return ingress.RefWorkflows{
		Source: source, Ref: "refs/heads/main", SHA: sha, Title: "Cache the price table per region", DefaultBranch: "main",
		File: &lock.File{Workflows: []lock.Workflow{
			{Name: "ci", SourceFile: ".kici/workflows/ci.yaml", On: []lock.Trigger{{Type: "push"}}},
			{
				Name: "deploy", SourceFile: ".kici/workflows/deploy.yaml",
				On: []lock.Trigger{{Type: "dispatch", Manual: true, Inputs: map[string]lock.Input{
					"environment": {Type: "enum", Values: []string{"staging", "production"}, Required: true, Description: "Where to put it"},
					"instances":   {Type: "integer", Default: 3.0, Min: &least, Max: &most, Description: "How many of it"},
					"dry-run":     {Type: "boolean", Default: true, Description: "Say what would happen, and do nothing"},
					"note":        {Type: "string", Pattern: "^[A-Za-z ]*$", Description: "Goes into the announcement"},
				}}},
				Jobs: []lock.Job{
					{Name: "build", RunsOn: linux},
					{Name: "smoke", RunsOn: linux, Matrix: &lock.Matrix{}, Needs: []lock.Need{{Job: "build"}}},
					{Name: "release", RunsOn: lock.Selector{Labels: []string{"linux", "vm"}}, Needs: []lock.Need{{Job: "smoke"}}},
				},
			},
			{Name: "nightly", SourceFile: ".kici/workflows/nightly.yaml", On: []lock.Trigger{{Type: "schedule"}}},
		}},
	}, nil
}

// fixedLogs is the log of every job of the gallery.
type fixedLogs map[string][]client.LogLine // by job and step

func (l fixedLogs) key(ref read.LogRef, step int) string { return fmt.Sprint(ref.JobID, "/", step) }

func (l fixedLogs) ReadLines(_ context.Context, ref read.LogRef, step int, cursor string, limit int) ([]client.LogLine, string, error) {
	at := 0
	_, _ = fmt.Sscanf(cursor, "c%d", &at)
	all := l[l.key(ref, step)]
	at = min(at, len(all))
	end := min(at+limit, len(all))
	return all[at:end], fmt.Sprintf("c%d", end), nil
}

func (l fixedLogs) SeekLine(_ context.Context, ref read.LogRef, step int, line int64) (string, int64, error) {
	n := min(int64(len(l[l.key(ref, step)])), max(line-1, 0))
	return fmt.Sprintf("c%d", n), n, nil
}

func (l fixedLogs) SearchLines(context.Context, read.LogRef, int, read.LogQuery) (read.LogFound, error) {
	return read.LogFound{Done: true}, nil
}

// write adds lines, a tenth of a second apart, from an instant on.
func (l fixedLogs) write(job string, step int, from time.Time, text string) {
	for i, msg := range strings.Split(strings.TrimSpace(text), "\n") {
		k := fmt.Sprint(job, "/", step)
		l[k] = append(l[k], client.LogLine{N: int64(len(l[k]) + 1), TS: from.UnixMilli() + int64(i)*100, Level: "stdout", Msg: msg})
	}
}

// painting makes the rows of the gallery.
type painting struct {
	*readtest.World
	t      *testing.T
	logs   fixedLogs
	pages  map[string]string
	agents int

	regs     map[string]string // workflow → registration
	last     string            // run that was added last
	settings *setting.Service
}

func newPainting(t *testing.T) *painting {
	return &painting{World: readtest.New(t, storetest.SQLite(t)), t: t, logs: fixedLogs{}, pages: map[string]string{}}
}
