package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e"

// running is a run whose first job runs on an agent.
func (s *site) running(n readtest.NewRun) (runID, jobID string) {
	s.t.Helper()
	if n.Jobs == nil {
		n.Jobs = []lock.Job{readtest.Job("build")}
	}
	runID = s.world.Run(n)
	jobID = s.world.JobID(runID, n.Jobs[0].Name)
	s.world.Agent("agent-1", jobID)
	s.world.Online("agent-1")
	s.world.Assign(runID, jobID, "agent-1")
	s.world.Start(runID, jobID, "agent-1")
	return runID, jobID
}

func (s *site) step(runID, jobID string, seq int64, index int, status string) {
	s.t.Helper()
	st := wire.StepStatus{Seq: seq, StepIndex: index, Name: fmt.Sprintf("step %d", index), Status: status, StartedAt: 1000}
	if status != "running" {
		st.FinishedAt = 2000
	}
	s.world.Step(runID, jobID, "agent-1", st)
}

func TestPagesShowHostileTextAsText(t *testing.T) {
	s := newSite(t, "")
	s.world.Scaler(4)
	j := readtest.Job("build")
	j.DisplayName, j.Steps[0].Name = hostile, hostile
	runID, jobID := s.running(readtest.NewRun{Title: hostile, Branch: "x" + hostile, Workflow: hostile, Jobs: []lock.Job{j, readtest.Job("later", "build")}})
	s.world.Step(runID, jobID, "agent-1", wire.StepStatus{Seq: 2, StepIndex: 1, Name: hostile, Status: "running", StartedAt: 1000})
	s.logs.write(1, 1, hostile, "\x1b[31m"+hostile, "::group::"+hostile, "::error::"+hostile)
	for _, path := range []string{"/runs", "/runs/" + runID, "/runs/" + runID + "/jobs/" + jobID + "?step=1", "/runs/" + runID + "/jobs/" + jobID + "?q=script", "/runs/" + runID + "?name=%3Cscript%3E", "/runs?q=" + "%3Cscript%3E", "/queue", "/agents", "/scalers", "/deliveries"} {
		r := s.ask("owner", http.MethodGet, path, nil)
		text := body(t, r)
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
		for _, bad := range []string{"<script>", "<img", "\u202e", "style=", " onerror=\"", "<i>", "javascript:"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s contains %q", path, bad)
			}
		}
		csp := r.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	if text := body(t, s.ask("owner", http.MethodGet, "/runs/"+runID, nil)); strings.Count(text, "&lt;script&gt;") < 6 {
		t.Error("the run's page does not show the text")
	}
}

func TestEveryLinkStaysBelowTheBasePath(t *testing.T) {
	s := newSite(t, "/ci")
	s.world.Scaler(4)
	runID, jobID := s.running(readtest.NewRun{})
	s.step(runID, jobID, 2, 1, "running")
	s.logs.write(1, 1, "a line")
	job := "/runs/" + runID + "/jobs/" + jobID
	for _, path := range []string{"/runs", "/runs/" + runID, job, job + "?step=1", job + "?q=line", "/queue", "/agents", "/scalers", "/deliveries", "/login", "/nothing"} {
		text := body(t, s.ask("owner", http.MethodGet, "/ci"+path, nil))
		for _, attribute := range []string{"href", "src", "action", "sse-connect", "data-stream", "data-href", "data-live", "data-job", "data-window"} {
			for _, rest := range strings.Split(text, " "+attribute+`="`)[1:] {
				if to, _, _ := strings.Cut(rest, `"`); !strings.HasPrefix(to, "/ci/") && !strings.HasPrefix(to, "#") && !strings.HasPrefix(to, "?") {
					t.Errorf("%s: %s=%q", path, attribute, to)
				}
			}
		}
	}
}

func TestAJobThatWaitsShowsWhyAndNoLog(t *testing.T) {
	s := newSite(t, "")
	runID := s.world.Run(readtest.NewRun{Jobs: []lock.Job{readtest.Job("build"), readtest.Job("later", "build")}})
	text := body(t, s.ask("owner", http.MethodGet, "/runs/"+runID+"/jobs/"+s.world.JobID(runID, "later"), nil))
	if !strings.Contains(text, "waits for build") || strings.Contains(text, "log.txt") || strings.Contains(text, `class="none"`) {
		t.Error("want the reason, no link to a log and no empty log")
	}
}

func TestLogWindow(t *testing.T) {
	s := newSite(t, "")
	runID, jobID := s.running(readtest.NewRun{})
	s.step(runID, jobID, 2, 1, "running")
	for n := range 5000 {
		s.logs.write(1, 1, fmt.Sprint("line ", n+1))
	}
	page := func(query string) string {
		return body(t, s.ask("owner", http.MethodGet, "/runs/"+runID+"/jobs/"+jobID+query, nil))
	}
	for _, c := range []struct {
		query          string
		first, last    int
		up, down, live bool
	}{
		{"?step=1", 4001, 5000, true, false, true},
		{"?step=1&line=end", 4001, 5000, true, false, true},
		{"?step=1&line=3000", 2001, 3000, true, true, false},
		{"?step=1&line=3001", 3001, 4000, true, true, false},
		{"?step=1&line=1", 1, 1000, false, true, false},
		{"?step=1&line=-7", 1, 1000, false, true, false},
		{"?step=1&line=5000", 4001, 5000, true, false, true},
		{"?step=1&line=9999999", 4001, 5000, true, false, true},
		{"?step=1&line=99999999999999999999", 4001, 5000, true, false, true},
		{"?step=1&q=line+77", 1, 1000, false, true, false},
	} {
		text := page(c.query)
		has := func(n int) bool { return strings.Contains(text, fmt.Sprintf(`id="L%d"`, n)) }
		if !has(c.first) || has(c.first-1) || !has(c.last) || has(c.last+1) {
			t.Errorf("%q does not show exactly %d to %d", c.query, c.first, c.last)
		}
		for part, want := range map[string]bool{`data-more="up"`: c.up, `data-more="down"`: c.down, "data-stream": c.live} {
			if got := strings.Contains(text, part); got != want {
				t.Errorf("%q: %s is there: %v", c.query, part, got)
			}
		}
	}
	for _, query := range []string{"", "?line=10", "?step=-3&line=x"} {
		if text := page(query); !strings.Contains(text, `id="L1.4601"`) || strings.Contains(text, `id="L1.4600"`) || !strings.Contains(text, "4600 earlier lines") {
			t.Errorf("%q does not show the last lines of all steps", query)
		}
	}
	for query, want := range map[string]int{"first=11&last=510": 500, "first=4991&last=5490": 10, "first=6000&last=6001": 0, "first=0&last=3": -1, "first=1&last=1001": -1, "first=5&last=4": -1, "": -1} {
		r := s.ask("owner", http.MethodGet, "/runs/"+runID+"/jobs/"+jobID+"/log/window?step=1&"+query, nil)
		if n := strings.Count(body(t, r), `id="L`); r.StatusCode == http.StatusOK && n != want || r.StatusCode == http.StatusBadRequest && want >= 0 {
			t.Errorf("window %q: %d with %d lines", query, r.StatusCode, n)
		}
	}
	if text := body(t, s.ask("owner", http.MethodGet, "/runs/"+runID+"/jobs/"+jobID+"/log.txt?step=1&line=77", nil)); text != "line 77\n" {
		t.Errorf("one raw line is %q", text)
	}
	raw := s.ask("owner", http.MethodGet, "/runs/"+runID+"/jobs/"+jobID+"/log.txt?step=1", nil)
	if text := body(t, raw); strings.Count(text, "\n") != 5000 || raw.Header.Get("Content-Disposition") != `inline; filename="build-step-1.log"` || raw.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("raw has %d lines of %s", strings.Count(text, "\n"), raw.Header.Get("Content-Type"))
	}
}

// scripted is a job whose state a test sets.
type scripted struct{ job client.Job }

func (s *scripted) Job(context.Context, read.Scope, string) (client.Job, error) { return s.job, nil }

func (s *scripted) steps(states ...string) {
	at := client.TimeOf(1000)
	s.job.Steps = nil
	for i, st := range states {
		step := client.Step{Index: i, Name: fmt.Sprint("step ", i), Status: st, Display: client.Status{Class: st}}
		if st != "pending" {
			step.StartedAt = &at
		}
		if st == "success" {
			step.FinishedAt = &at
		}
		s.job.Steps = append(s.job.Steps, step)
	}
}

// sent is what a follower sends: events with the ids of the elements in them.
type sent struct {
	events []string
	last   string
}

func (s *sent) take(id, event, html string) error {
	if id != "" {
		s.last = id
	}
	for _, part := range strings.Split(html, ` id="`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		event += " " + name
	}
	s.events = append(s.events, event)
	return nil
}

func (s *sent) want(t *testing.T, events ...string) {
	t.Helper()
	if !slices.Equal(s.events, events) {
		t.Errorf("sent %q, want %q", s.events, events)
	}
	s.events = nil
}

func TestFollowerSendsEachLineOnce(t *testing.T) {
	ctx := context.Background()
	logs := &memoryLogs{lines: map[string][]string{}}
	jobs := &scripted{job: client.Job{ID: "j", RunID: "r", Attempt: 1}}
	out := &sent{}
	f := &follower{jobs: jobs, logs: logs, send: out.take, only: allSteps}
	draw := func() {
		t.Helper()
		if err := f.draw(ctx); err != nil {
			t.Fatal(err)
		}
	}
	jobs.steps("running", "pending")
	logs.write(1, 0, "a", "b")
	draw()
	out.want(t, "lines S0 L0.1 L0.2")
	draw()
	out.want(t)
	logs.write(1, 0, "c")
	jobs.steps("success", "running") // the report overtakes the last line of step 0
	draw()
	out.want(t, "lines L0.3")
	logs.write(1, 0, "d")
	draw()
	out.want(t, "lines L0.4")

	at, ok := parsePosition(out.last) // the connection breaks; the browser comes back with the last id
	f = &follower{jobs: jobs, logs: logs, send: out.take, only: allSteps, at: at}
	if !ok {
		t.Fatalf("id %q", out.last)
	}
	draw()
	out.want(t)
	logs.write(1, 1, "e")
	draw()
	out.want(t, "lines S1 L1.1")

	jobs.job.Attempt = 2
	jobs.steps("running", "pending")
	logs.write(2, 0, "again")
	draw()
	out.want(t, "fresh", "lines S0 L0.1")
	jobs.steps("success", "success")
	end := client.TimeOf(3000)
	jobs.job.FinishedAt = &end
	if err := f.draw(ctx); !errors.Is(err, errEnd) {
		t.Error(err)
	}
	out.want(t, "lines S1")
}

func TestFollowerOfOneStepShowsNoHeading(t *testing.T) {
	logs := &memoryLogs{lines: map[string][]string{}}
	jobs := &scripted{job: client.Job{Attempt: 1}}
	jobs.steps("success", "running")
	out := &sent{}
	f := &follower{jobs: jobs, logs: logs, send: out.take, only: 1}
	logs.write(1, 0, "no")
	logs.write(1, 1, slices.Repeat([]string{"x"}, read.MaxLogLimit+1)...)
	if err := f.draw(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(out.events) != 2 || out.events[1] != fmt.Sprintf("lines L%d", read.MaxLogLimit+1) {
		t.Errorf("%d events, the last %.80q", len(out.events), out.events[len(out.events)-1])
	}
}

// events reads server-sent events from a real connection.
func events(t *testing.T, ctx context.Context, url string, header ...string) <-chan [3]string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: cookieName, Value: "owner"})
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	out := make(chan [3]string, 1000)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		var ev [3]string // id, event, data
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, 4<<20)
		for sc.Scan() {
			name, value, _ := strings.Cut(sc.Text(), ": ")
			switch i := slices.Index([]string{"id", "event", "data"}, name); {
			case i >= 0:
				ev[i] += value
			case sc.Text() == "" && ev[1] != "":
				out <- ev
				ev = [3]string{}
			}
		}
	}()
	return out
}

func receive(t *testing.T, from <-chan [3]string, name string) [3]string {
	t.Helper()
	for {
		select {
		case ev, ok := <-from:
			if !ok {
				t.Fatalf("the stream ended before %q", name)
			}
			if ev[1] == name {
				return ev
			}
		case <-time.After(time.Minute):
			t.Fatalf("no %q came", name)
		}
	}
}

func TestStreamsOverARealConnection(t *testing.T) {
	s := newSite(t, "")
	runID, jobID := s.running(readtest.NewRun{})
	s.step(runID, jobID, 2, 1, "running")
	s.logs.write(1, 1, "one", "two")
	srv := httptest.NewServer(s.handler)
	defer srv.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	path := srv.URL + "/runs/" + runID
	page := events(t, ctx, path+"/live?job="+jobID)
	receive(t, page, "patch")
	log := events(t, ctx, path+"/jobs/"+jobID+"/log/live")
	first := receive(t, log, "lines")
	if !strings.Contains(first[2], `id="L1.2"`) {
		t.Errorf("first %q", first[2])
	}
	again := events(t, ctx, path+"/jobs/"+jobID+"/log/live?from=1%7C0%7Cfalse%7C", "Last-Event-ID", first[0])
	s.logs.write(1, 1, "three")
	s.world.Store.Publish(store.TopicLogs, jobID)
	for _, from := range []<-chan [3]string{log, again} {
		if ev := receive(t, from, "lines"); !strings.Contains(ev[2], `id="L1.3"`) || strings.Contains(ev[2], `id="L1.2"`) {
			t.Errorf("then %q", ev[2])
		}
	}
	s.world.Finish(jobID, "agent-1", ci.JobSuccess)
	receive(t, log, "end")
	receive(t, again, "end")
	receive(t, page, "end")
	for range page { // the connection is closed by the server
	}
}
