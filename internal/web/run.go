package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
)

// runView is one run: its jobs and, when they are not many, one of them open.
type runView struct {
	page
	Run   client.RunDetail
	Ch    choice
	Graph graph
	Jobs  jobList
	Open  *jobView
	Story *story       // nil for a run of many jobs
	Held  []read.Group // that hold it back
	Key   string       // makes its forms safe to send twice

	CanCancel, CanRerun, CanDelivery bool
}

func (s *server) run(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.runView(r.Context(), c, choiceOf(r))
	if err != nil {
		return err
	}
	v.Key = actionKey()
	if v.Open != nil {
		if v.Open.Log, err = s.log(r.Context(), v.Open.Job, choice{step: allSteps}); err != nil {
			return err
		}
	}
	s.render(w, r, runPage(v))
	return nil
}

func (s *server) runView(ctx context.Context, c caller, ch choice) (runView, error) {
	detail, err := s.Reads.Run(ctx, c.scope, ch.run)
	if err != nil {
		return runView{}, err
	}
	v := runView{
		page: s.frame(c, "runs", fmt.Sprintf("%s #%d · %s", detail.Workflow, detail.Number, detail.Repo)),
		Run:  detail, Ch: ch, CanCancel: c.offers("run.cancel", access.RunCancel), CanRerun: c.offers("run.rerun", access.RunTrigger), CanDelivery: c.Can(access.EventLogRead),
	}
	v.Graph = graphOf(detail.Jobs, "", time.Now().UnixMilli())
	if v.Jobs, err = jobListOf(detail.Jobs, ch.jobs); err != nil {
		return runView{}, err
	}
	if v.Held, err = s.heldBy(ctx, c, detail); err != nil {
		return runView{}, err
	}
	if v.small() {
		if v.Story, err = s.story(ctx, c, detail.Run); err != nil {
			return runView{}, err
		}
	}
	if open := openJob(detail.Jobs, ch.job); open != "" && v.small() {
		job, err := s.jobView(ctx, c, detail.Run, open)
		if err != nil {
			return runView{}, err
		}
		v.Open = &job
		v.Graph = graphOf(detail.Jobs, open, time.Now().UnixMilli())
	}
	return v, nil
}

// small runs are drawn whole: graph, open job, time line.
func (v runView) small() bool { return len(v.Run.Jobs) <= jobsShown }

// openJob chooses the job to show: the one asked for, else a failed one, one at work, one allowed to fail, the last that ran.
func openJob(jobs []client.Job, asked string) string {
	best, rank := "", -1
	for _, j := range jobs {
		r := map[string]int{"failed": 4, "running": 3, "allowed": 2, "success": 1}[j.Display.Class]
		if j.ID == asked {
			return j.ID
		}
		if r > rank || r == rank && r == 1 {
			best, rank = j.ID, r
		}
	}
	return best
}

// runLive sends the parts of the page that have changed.
func (s *server) runLive(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	ch := choiceOf(r)
	head, err := s.Reads.RunHead(ctx, c.scope, ch.run)
	if err != nil {
		return err
	}
	key, st := actionKey(), openStream(w)
	subs := []*store.Subscription{s.Hub.Subscribe(store.TopicRuns, head.ID)}
	return s.quietly(r, s.follow(ctx, st, subs, func() error {
		began := time.Now()
		v, err := s.runView(ctx, c, ch)
		if err != nil {
			return err
		}
		st.rest = liveShare * time.Since(began)
		v.Key = key
		if err := st.patch(ctx, v.parts()); err != nil {
			return err
		}
		if v.Run.FinishedAt != nil {
			return errEnd
		}
		return nil
	}))
}

// parts are what a live page is made of.
func (v runView) parts() []part {
	out := []part{{id: "run-head", c: runHead(v)}, {id: "held-by", c: heldPanel(v)}}
	if v.small() {
		g := part{id: "graph", c: graphPanel(v), parts: []part{{id: "graph-head", c: graphHead(v)}}}
		for _, col := range v.Graph.Columns {
			for _, cell := range col {
				g.key += "," + cell.Group
				for _, j := range cell.Jobs {
					g.key += " " + j.ID
					g.parts = append(g.parts, part{id: "job-" + j.ID, c: jobCard(v, j)})
				}
			}
			g.key += "|"
		}
		out = append(out, g)
	} else {
		out = append(out, part{id: "bases", c: basesPanel(v)})
	}
	if v.Open != nil {
		out = append(out, v.Open.parts()...)
	}
	rows := part{id: "timeline", c: timeline(v), parts: []part{{id: "timeline-head", c: timelineHead(v)}}}
	for _, j := range v.Jobs.Rows {
		rows.key += " " + j.ID
		rows.parts = append(rows.parts, part{id: "row-" + j.ID, c: jobRow(v, j)})
	}
	return append(out, rows, part{id: "run-outputs", c: runOutputs(v)}, part{id: "effects", c: effectsPanel(v)}, part{id: "record", c: storyPanel(v)})
}

func (v runView) live() bool { return v.Run.FinishedAt == nil }

// selection is what the page's stream is asked for.
func (v runView) selection() string {
	q := v.Ch.jobs.values()
	if v.Open != nil {
		q.Set("job", v.Open.Job.ID)
	}
	return q.Encode()
}

// answer is the run's heading: what became of it, and where to look. Job is nil when it points to none.
type answer struct {
	Text string // before the job's name
	Job  *client.Job
	Step int // allSteps, or the one that failed
	Rest string
}

func (v runView) answer() answer {
	a := answer{Text: fmt.Sprintf("#%d ", v.Run.Number), Step: allSteps}
	bad, now, waits := v.pick("failed"), v.pick("running"), v.pick("queued", "held")
	switch {
	case v.heldBack():
		a.Text += "waits for the concurrency group " + v.Held[0].Key
	case v.Run.Display.Class == "failed" && bad.n > 0:
		return v.failed(a, bad)
	case v.Run.Display.Class == "failed":
		a.Text += v.Run.Display.Word
	case v.Run.FinishedAt != nil && v.Run.Status == "success":
		a.Text += "succeeded"
		if v.Run.DurationMs != nil {
			a.Text += " in " + durationMs(v.Run.DurationMs)
		}
	case v.Run.Status == "cancelled" && v.Run.CancelledBy != "":
		a.Text += "was cancelled by " + v.Run.CancelledBy
	case v.Run.FinishedAt == nil && bad.n > 0:
		a = v.failed(a, bad)
		a.Text = strings.Replace(a.Text, "failed", v.Run.Display.Word+", with a failure", 1)
	case now.n > 0 && v.Run.Status == "running":
		a.Text, a.Job = a.Text+"is running: ", now.job
		if now.n > 1 {
			a.Rest = " and " + count(now.n-1, "more job", "more jobs")
		}
		a.Rest += fmt.Sprintf("; %d of %d done", v.done(), len(v.Run.Jobs))
	case waits.n > 0 && v.Run.Status != "cancelling":
		a.Text, a.Job = a.Text+"waits: ", waits.job
		if waits.n > 1 {
			a.Rest = " and " + count(waits.n-1, "more job", "more jobs")
		}
	default:
		a.Text += v.Run.Display.Word
	}
	return a
}

// heldBack reports whether the whole run waits for a concurrency group.
func (v runView) heldBack() bool {
	return len(v.Held) > 0 && v.Run.StartedAt == nil && v.Run.Status != string(ci.RunCancelling)
}

func (v runView) failed(a answer, bad picked) answer {
	a.Text, a.Job = a.Text+"failed: ", bad.job
	for _, st := range bad.job.Steps {
		if st.Display.Class == "failed" {
			a.Step, a.Rest = st.Index, fmt.Sprintf(" in step %d", st.Index)
			break
		}
	}
	if bad.n > 1 {
		a.Rest += ", and " + count(bad.n-1, "more job", "more jobs")
	}
	return a
}

// picked is the first of n jobs in a status.
type picked struct {
	job *client.Job
	n   int
}

func (v runView) pick(classes ...string) (p picked) {
	for i := range v.Run.Jobs {
		for _, class := range classes {
			if v.Run.Jobs[i].Display.Class != class {
				continue
			}
			if p.n++; p.n == 1 {
				p.job = &v.Run.Jobs[i]
			}
		}
	}
	return p
}

func (v runView) done() (n int) {
	for _, j := range v.Run.Jobs {
		if j.FinishedAt != nil {
			n++
		}
	}
	return n
}

// someFailed reports whether running only the failed jobs again differs from running all.
func (v runView) someFailed() bool {
	good := 0
	for _, j := range v.Run.Jobs {
		if j.Display.Class == "success" || j.Display.Class == "allowed" {
			good++
		}
	}
	return good > 0 && good < len(v.Run.Jobs)
}

// cause says who or what started the run.
func (v runView) cause() string {
	out := cmp.Or(v.Run.TriggerEvent, "started")
	if v.Run.Actor != "" {
		out += " by " + v.Run.Actor
	}
	return out
}

// checksWords says what became of a run's commit statuses.
func checksWords(c *client.Checks) string {
	out := fmt.Sprintf("%d posted", c.Posted)
	if p := c.Problem(); p != "" {
		out += ", " + text(p)
	} else if c.Pending {
		out += ", more to come"
	}
	return out
}

// outputs are those of all jobs, at most as many as a page of jobs.
func (v runView) outputs() (out [][3]string, more int) {
	for _, j := range v.Run.Jobs {
		for _, kv := range pairs(j.Outputs) {
			if len(out) == jobsShown {
				more++
				continue
			}
			out = append(out, [3]string{j.DisplayName, kv[0], kv[1]})
		}
	}
	return out, more
}

// jobLine is the sentence under a job's name.
func jobLine(j client.Job) string {
	switch {
	case j.Display.Class == "success" || j.Display.Class == "skipped" && j.Why == "":
		return ""
	case j.Display.Class == "allowed":
		return "allowed to fail · " + cmp.Or(j.Error, j.Why)
	}
	return cmp.Or(j.Why, j.Error)
}
