package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// wide is a run of 2,000 jobs of twelve names, of which one has failed.
func (s *site) wide() (runID, failed string) {
	s.t.Helper()
	var jobs []lock.Job
	for i := range 2000 {
		j := readtest.Job(fmt.Sprintf("unit-%d (%d)", i%12, i))
		j.DisplayName = j.Name
		jobs = append(jobs, j)
	}
	runID = s.world.Run(readtest.NewRun{Jobs: jobs})
	failed = s.world.JobID(runID, "unit-7 (1999)")
	for i, j := range []string{failed, s.world.JobID(runID, "unit-0 (1200)")} {
		agent := fmt.Sprint("agent-", i)
		s.world.Agent(agent, j)
		s.world.Online(agent)
		s.world.Assign(runID, j, agent)
		s.world.Start(runID, j, agent)
		if j == failed {
			s.world.Step(runID, j, agent, wire.StepStatus{Seq: 2, StepIndex: 3, Name: "make", Status: "failed", StartedAt: 1, FinishedAt: 2})
			s.world.Finish(j, agent, ci.JobFailed)
		}
	}
	return runID, failed
}

var rowID = regexp.MustCompile(`id="row-([0-9a-f-]+)"`)

func rowsOf(text string) (ids []string) {
	for _, m := range rowID.FindAllStringSubmatch(text, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// A run of 2,000 jobs is summed up: a page lists 100 of them, what needs a person first, and the rest is pages away.
func TestARunOfManyJobsStaysSmall(t *testing.T) {
	s := newSite(t, "")
	runID, failed := s.wide()
	page := func(query string) string {
		t.Helper()
		r := s.ask("owner", http.MethodGet, "/runs/"+runID+query, nil)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%q: %d", query, r.StatusCode)
		}
		return body(t, r)
	}
	text := page("")
	ids := rowsOf(text)
	if len(ids) != jobsShown || ids[0] != failed {
		t.Errorf("%d rows, the first %s, want %d and %s", len(ids), ids[0], jobsShown, failed)
	}
	if n := strings.Count(text, `class="job"`); n != 0 || strings.Count(text, `class="shares"`) == 0 {
		t.Errorf("%d jobs are drawn one by one", n)
	}
	if len(text) > 150<<10 {
		t.Errorf("the page has %d bytes", len(text))
	}
	for _, want := range []string{"unit-7 (1999)", " in step 3", "2000 jobs: ", "Next 100"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := rowsOf(page("?status=failed")); !slices.Equal(got, []string{failed}) {
		t.Errorf("failed: %v", got)
	}
	if got := rowsOf(page("?name=UNIT-7+%28")); len(got) != jobsShown || got[0] != failed {
		t.Errorf("by name: %d rows", len(got))
	}
	seen := map[string]bool{}
	for query := ""; ; {
		text := page(query)
		for _, id := range rowsOf(text) {
			if seen[id] {
				t.Fatalf("job %s is on two pages", id)
			}
			seen[id] = true
		}
		next := regexp.MustCompile(`rel="next" href="[^"?]*(\?[^"#]*)`).FindStringSubmatch(text)
		if next == nil {
			break
		}
		query = strings.ReplaceAll(next[1], "&amp;", "&")
	}
	if len(seen) != 2000 {
		t.Errorf("the pages list %d jobs", len(seen))
	}
	if r := s.ask("owner", http.MethodGet, "/runs/"+runID+"?after=x", nil); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a made-up place: %d", r.StatusCode)
	}
}

// A live page gets what changed, not itself again.
func TestALivePageIsSentOnlyWhatChanged(t *testing.T) {
	s := newSite(t, "")
	runID, _ := s.wide()
	srv := httptest.NewServer(s.handler)
	defer srv.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	page := events(t, ctx, srv.URL+"/runs/"+runID+"/live")
	if first := receive(t, page, "patch"); len(rowsOf(first[2])) != jobsShown {
		t.Errorf("the first message has %d rows", len(rowsOf(first[2])))
	}
	running := s.world.JobID(runID, "unit-0 (1200)")
	s.world.Step(runID, running, "agent-1", wire.StepStatus{Seq: 2, StepIndex: 1, Name: "x", Status: "running", StartedAt: 1})
	s.world.Finish(running, "agent-1", ci.JobSuccess)
	s.world.Store.Publish(store.TopicRuns, runID)
	second := receive(t, page, "patch")
	if !strings.Contains(second[2], `id="bases"`) || !strings.Contains(second[2], "1 success") {
		t.Errorf("the second message does not say what changed: %.300s", second[2])
	}
	cancel()
	for range page { // until the connection is closed
	}
}

func TestPatchSendsDifferences(t *testing.T) {
	w := httptest.NewRecorder()
	st := openStream(w)
	parts := func(word string, since int64, ids ...string) []part {
		at := client.TimeOf(since)
		list := part{id: "list", key: strings.Join(ids, " "), c: status("list", strings.Join(ids, " "))}
		for _, id := range ids {
			list.parts = append(list.parts, part{id: id, c: status(id, word)})
		}
		return []part{{id: "head", c: took(&at, nil, nil)}, list}
	}
	send := func(p []part) string {
		w.Body.Reset()
		if err := st.patch(context.Background(), p); err != nil {
			t.Fatal(err)
		}
		return w.Body.String()
	}
	if got := send(parts("x", 1000, "a", "b")); !strings.Contains(got, ">a b<") || !strings.Contains(got, "data-since") {
		t.Errorf("at first %q", got)
	}
	if got := send(parts("x", 1000, "a", "b")); got != "" {
		t.Errorf("nothing changed but a clock: %q", got)
	}
	if got := send(parts("y", 1000, "a", "b")); strings.Contains(got, "list") || strings.Contains(got, "since") || !strings.Contains(got, `"st a"`) || !strings.Contains(got, `"st b"`) {
		t.Errorf("two of the list changed: %q", got)
	}
	if got := send(parts("y", 2000, "b", "a")); !strings.Contains(got, ">b a<") || strings.Contains(got, `"st a"`) || !strings.Contains(got, "2000") {
		t.Errorf("the order changed, and since when: %q", got)
	}
}

func TestAnswers(t *testing.T) {
	took := int64(131_000)
	end := client.TimeOf(9)
	view := func(status, class string, done bool, jobs ...client.Job) runView {
		v := runView{Run: client.RunDetail{Run: client.Run{Number: 482, Status: status, Display: client.Status{Word: status, Class: class}, CancelledBy: "ada"}, Jobs: jobs}}
		if done {
			v.Run.FinishedAt, v.Run.DurationMs = &end, &took
		}
		return v
	}
	bad := job("test (1.26)", "test", 0, "failed", 1, 2)
	bad.Steps = []client.Step{{Index: 1, Display: client.Status{Class: "success"}}, {Index: 3, Display: client.Status{Class: "failed"}}}
	good, now, waits := job("lint", "lint", 0, "success", 1, 2), job("image", "image", 0, "running", 1), job("deploy", "deploy", 0, "held")
	for want, v := range map[string]runView{
		"#482 failed: test (1.26) in step 3":                 view("failed", "failed", true, good, bad),
		"#482 failed: test (1.26) in step 3, and 1 more job": view("failed", "failed", true, bad, job("x", "x", 0, "failed", 1, 2)),
		"#482 failed":                                         view("failed", "failed", true),
		"#482 succeeded in 2 m 11":                            view("success", "success", true, good),
		"#482 is running: image; 1 of 3 done":                 view("running", "running", false, good, now, waits),
		"#482 running, with a failure: test (1.26) in step 3": view("running", "running", false, bad, now),
		"#482 waits: deploy":                                  view("running", "running", false, good, waits),
		"#482 was cancelled by ada":                           view("cancelled", "cancelled", true, good),
		"#482 cancelling":                                     view("cancelling", "running", false, waits),
	} {
		a := v.answer()
		got := a.Text
		if a.Job != nil {
			got += a.Job.DisplayName + a.Rest
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTimeLineSaysHowTheTimeWasSpent(t *testing.T) {
	at := func(ms int64) *client.Time { c := client.TimeOf(ms); return &c }
	j := job("a", "a", 0, "success", 4000, 10_000)
	j.QueuedAt, j.AssignedAt = at(1000), at(3000)
	wait := job("b", "b", 0, "queued")
	wait.QueuedAt = at(1000)
	g := graphOf([]client.Job{j, wait}, "", 11_000)
	got, words := g.segments(j)
	if words != "queued 2.0 s, starting 1.0 s, ran 6.0 s" || len(got) != 3 || got[0].Class+got[1].Class+got[2].Class != "qsr" {
		t.Errorf("%q %+v", words, got)
	}
	if got, words := g.segments(wait); len(got) != 1 || words != "queued now" || number64(got[0].W) < 99 {
		t.Errorf("%q %+v", words, got)
	}
	if got, words := g.segments(job("c", "c", 0, "pending")); len(got) != 0 || words != "" {
		t.Errorf("%q %+v", words, got)
	}
}

func TestCoarseTimeChangesRarelyAndNeverLags(t *testing.T) {
	changes, last := 0, int64(-1)
	for ms := int64(1000); ms <= 2000; ms++ {
		c := coarse(ms)
		if c < ms || c > ms+ms/15 {
			t.Fatalf("%d becomes %d", ms, c)
		}
		if c != last {
			changes++
		}
		last = c
	}
	if changes > 40 || coarse(-5) != 0 {
		t.Errorf("%d changes, %d", changes, coarse(-5))
	}
}

func TestLogSearchOnThePage(t *testing.T) {
	s := newSite(t, "")
	runID, jobID := s.running(readtest.NewRun{})
	s.step(runID, jobID, 2, 1, "success")
	s.step(runID, jobID, 3, 2, "running")
	for n := range 3000 {
		line := fmt.Sprint("line ", n+1)
		if n%1000 == 499 {
			line = "\x1b[31mNeedle\x1b[0m <b>"
		}
		s.logs.write(1, 1, line)
	}
	s.logs.write(1, 2, "a needle here too")
	page := func(query string) string {
		return body(t, s.ask("owner", http.MethodGet, "/runs/"+runID+"/jobs/"+jobID+query, nil))
	}
	for query, want := range map[string][]string{
		"?step=1&q=needle":           {"first in line 500", `line=1500&amp;q=needle&amp;step=1#L1500"`, `class="l  hit" id="L500"`},
		"?step=1&q=needle&line=1500": {`data-match="prev" href="/runs/` + runID + "/jobs/" + jobID + `?line=500&amp;`, `data-match="next" href="/runs/` + runID + "/jobs/" + jobID + `?line=2500&amp;`, "line 1500"},
		"?step=1&q=needle&line=2500": {"no later match", `data-match="prev"`},
		"?step=1&q=nowhere":          {"not in this step"},
		"?q=needle":                  {"4 lines contain “needle”", `?line=1&amp;q=needle&amp;step=2#L1"`, "<mark>needle</mark>"},
		"?q=nowhere":                 {"No line contains “nowhere”"},
		"?q=%3Cb%3E":                 {"3 lines contain “&lt;b&gt;”"},
	} {
		text := page(query)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q", query, w)
			}
		}
	}
}

func TestAnEarlierAttemptIsReachable(t *testing.T) {
	s := newSite(t, "")
	runID, jobID := s.running(readtest.NewRun{})
	s.step(runID, jobID, 2, 1, "running")
	s.logs.write(1, 1, "the current one")
	s.logs.write(2, 1, "another one")
	path := "/runs/" + runID + "/jobs/" + jobID
	for query, want := range map[string]string{"": "the current one", "?attempt=2": "another one", "?attempt=2&step=1": "another one", "?attempt=7": "Nothing is stored of attempt 7"} {
		text := body(t, s.ask("owner", http.MethodGet, path+query, nil))
		if !strings.Contains(text, want) || strings.Contains(text, "data-stream") == (query != "") {
			t.Errorf("%q lacks %q, or streams what cannot change", query, want)
		}
	}
	if text := body(t, s.ask("owner", http.MethodGet, path+"/log.txt?attempt=2", nil)); text != "another one\n" {
		t.Errorf("raw: %q", text)
	}
}

func TestARunSaysWhatBecameOfItsCommitStatuses(t *testing.T) {
	s := newSite(t, "")
	runID, _ := s.running(readtest.NewRun{Checks: true})
	if text := body(t, s.ask("owner", http.MethodGet, "/runs/"+runID, nil)); !strings.Contains(text, "commit statuses: 0 posted, more to come") {
		t.Error("the page does not say it")
	}
	c := &client.Checks{Posted: 2, Failed: 1, Reason: "denied", Source: "hub", Error: "the token\u202e may not"}
	if got := checksWords(c); got != "2 posted, 1 not posted: the token▯ may not; kici source set-token hub" {
		t.Error(got)
	}
}

// Every button asks before it does something, and needs no script for it.
func TestButtonsAskFirst(t *testing.T) {
	s := newSite(t, "")
	runID, jobID := s.running(readtest.NewRun{})
	text := body(t, s.ask("owner", http.MethodGet, "/runs/"+runID, nil))
	for _, want := range []string{`id="confirm-cancel"`, "Yes, cancel", `name="force" value="true"`} {
		if !strings.Contains(text, want) {
			t.Errorf("a running run lacks %q", want)
		}
	}
	s.world.Finish(jobID, "agent-1", ci.JobSuccess)
	text = body(t, s.ask("owner", http.MethodGet, "/runs/"+runID, nil))
	if !strings.Contains(text, "Yes, re-run") || strings.Contains(text, "re-run failed") || strings.Contains(text, "confirm-cancel") {
		t.Error("a successful run has the wrong buttons")
	}
	if text := body(t, s.ask("auditor", http.MethodGet, "/runs/"+runID, nil)); strings.Contains(text, "confirm-") {
		t.Error("an auditor sees buttons")
	}
}

// A token that somebody pasted into an address comes back in no answer of a page that does not search for it.
func TestNoPageReflectsAToken(t *testing.T) {
	s := newSite(t, "")
	runID, jobID := s.running(readtest.NewRun{})
	s.step(runID, jobID, 2, 1, "running")
	s.logs.write(1, 1, "a line")
	const token = "kici_adm_0123456789abcdefSECRET"
	job := "/runs/" + runID + "/jobs/" + jobID
	for _, path := range []string{
		"/", "/runs", "/runs/" + runID, job, job + "/log.txt", job + "/log/window", "/queue", "/agents", "/scalers", "/sources", "/deliveries", "/start", "/login", "/nothing",
	} {
		for _, role := range []string{"owner", "auditor", ""} {
			for _, k := range []string{"token", "access_token", "step", "line", "attempt", "time", "from", "after", "cursor", "first", "last", "job"} {
				r := s.ask(role, http.MethodGet, path+"?"+url.Values{k: {token}}.Encode(), nil)
				if text := body(t, r); strings.Contains(text, token) || strings.Contains(r.Header.Get("Content-Disposition"), token) {
					t.Errorf("%s?%s as %q gives the token back", path, k, role)
				}
			}
		}
	}
	for _, path := range []string{"/%s", "/runs/%s", "/runs/" + runID + "/jobs/%s", "/runs/%s/jobs/" + jobID, job + "/%s", "/deliveries/%s", "/sources/%s", "/login/link/%s", "/static/%s"} {
		r := s.ask("owner", http.MethodGet, fmt.Sprintf(path, token), nil)
		if text := body(t, r); strings.Contains(text, token) {
			t.Errorf("%s gives the token back", path)
		}
	}
}

func BenchmarkRunOf2000Jobs(b *testing.B) {
	var jobs []client.Job
	for i := range 2000 {
		jobs = append(jobs, job(fmt.Sprintf("unit-%d (%d)", i%12, i), fmt.Sprintf("unit-%d", i%12), 0, []string{"failed", "success", "running", "queued"}[i%4], int64(i), int64(i+1000)))
	}
	size := 0
	for b.Loop() {
		v := runView{Run: client.RunDetail{Jobs: jobs}, Graph: graphOf(jobs, "", 5000)}
		v.Jobs, _ = jobListOf(jobs, jobFilter{})
		var out strings.Builder
		if err := runPage(v).Render(context.Background(), &out); err != nil {
			b.Fatal(err)
		}
		size = out.Len()
	}
	b.ReportMetric(float64(size), "bytes/page")
}
