package read

import (
	"context"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

// Kinds of the reasons of jobs that are held back although their needs are met.
const (
	kindGroup  = "concurrency"
	kindWindow = "max_parallel"
)

// place is where a run or job stands in the concurrency group that it waits for.
type place struct {
	group      string
	holders    []client.Reason // one for each of those that hold it
	before     int             // that wait before it
	promoted   bool            // it has its place and goes on in a moment
	superseded string          // by whom; '' for nobody
	until      *client.Time    // it is ended then
}

// turn is why a child of a fan-out waits for the others.
type turn struct {
	max     int64
	running []string
}

// holds is what holds the jobs of one run back.
type holds struct {
	run   *place            // the whole run
	jobs  map[string]*place // by id
	turns map[string]turn   // by base job
}

// readHolds costs one statement where nothing is held.
func readHolds(ctx context.Context, q *db.Queries, runID string, jobs []db.ReadRunJobsRow) (holds, error) {
	h := holds{jobs: map[string]*place{}, turns: map[string]turn{}}
	slots, err := q.ReadHolds(ctx, runID)
	if err != nil {
		return h, err
	}
	groups := map[string][]db.ReadGroupRow{}
	for _, s := range slots {
		if _, read := groups[s.GroupKey]; !read {
			if groups[s.GroupKey], err = q.ReadGroup(ctx, s.OrgID, s.RoutingKey, s.GroupKey); err != nil {
				return h, err
			}
		}
		p := placeOf(s, groups[s.GroupKey])
		if s.JobID == "" {
			h.run = p
		} else {
			h.jobs[s.JobID] = p
		}
	}
	return h, h.readTurns(ctx, q, runID, jobs)
}

func placeOf(s db.ReadHoldsRow, group []db.ReadGroupRow) *place {
	p := &place{group: s.GroupKey, promoted: s.State == "active", superseded: s.SupersededBy, until: timePtr(s.WaitUntil)}
	for _, g := range group {
		switch {
		case g.ID == s.ID:
			return p
		case g.State == "active":
			p.holders = append(p.holders, client.Reason{Kind: kindGroup, Job: g.JobID, Text: holderText(g)})
		case g.SupersededBy == "":
			p.before++
		}
	}
	return p
}

func holderText(g db.ReadGroupRow) string {
	if g.JobName.String != "" {
		return fmt.Sprintf("%s#%d/%s", g.Repo, g.Number, g.JobName.String)
	}
	return fmt.Sprintf("%s#%d", g.Repo, g.Number)
}

// readTurns looks at fan-outs of which some child is held, but not by a concurrency group.
func (h holds) readTurns(ctx context.Context, q *db.Queries, runID string, jobs []db.ReadRunJobsRow) error {
	some := false
	for _, j := range jobs {
		some = some || j.Status == string(ci.JobHeld) && h.jobs[j.ID] == nil
	}
	if !some {
		return nil
	}
	rows, err := q.FanoutsOfRun(ctx, runID)
	if err != nil {
		return err
	}
	for _, r := range rows {
		w := turn{max: r.MaxParallel}
		for _, j := range jobs {
			s := ci.JobStatus(j.Status)
			if j.BaseName == r.BaseName && !s.Terminal() && s != ci.JobPending && (s != ci.JobHeld || h.jobs[j.ID] != nil) {
				w.running = append(w.running, j.Name)
			}
		}
		h.turns[r.BaseName] = w
	}
	return nil
}

// say tells why whoever has this place does not go on. who is "it" or "its run".
func (p *place) say(w *client.Why, who string) {
	group := fmt.Sprintf("concurrency group %q", p.group)
	switch {
	case p.superseded != "":
		w.Headline = fmt.Sprintf("%s is about to be ended: superseded by %s in %s", who, p.superseded, group)
	case p.promoted:
		w.Headline = fmt.Sprintf("%s has a place in %s and goes on in a moment", who, group)
	default:
		w.Headline = fmt.Sprintf("%s waits for %s%s", who, group, p.held())
	}
	w.Reasons = append(w.Reasons, client.Reason{Kind: kindGroup, Text: w.Headline, Until: p.until})
	for _, r := range p.holders {
		r.Text = fmt.Sprintf("%s holds %s", r.Text, group)
		w.Reasons = append(w.Reasons, r)
	}
}

func (p *place) held() string {
	text := ""
	if len(p.holders) > 0 {
		names := make([]string, len(p.holders))
		for i, r := range p.holders {
			names[i] = r.Text
		}
		verb := " holds it"
		if len(names) > 1 {
			verb = " hold it"
		}
		text = ", " + list(names) + verb
	}
	switch p.before {
	case 0:
	case 1:
		text += "; one waits before it"
	default:
		text += fmt.Sprintf("; %d wait before it", p.before)
	}
	return text
}

// held says why a job is held back.
func (f whyFacts) held(w *client.Why) {
	if p := f.holds.jobs[f.job.ID]; p != nil {
		p.say(w, "it")
		return
	}
	win, ok := f.holds.turns[f.job.BaseName]
	switch {
	case ok && win.max > 0 && len(win.running) > 0:
		w.Headline = fmt.Sprintf("waits for its turn: max-parallel is %d, and %s %s not ended", win.max, list(win.running), have(len(win.running)))
	case ok:
		w.Headline = "waits for its turn in the matrix, and goes on in a moment"
	default:
		w.Headline = "is held and waits for an approval"
		w.Reasons = append(w.Reasons, client.Reason{Kind: "held", Text: w.Headline})
		return
	}
	w.Reasons = append(w.Reasons, client.Reason{Kind: kindWindow, Text: w.Headline})
}

func have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

// holdsOf is readHolds for one job; the jobs of its run are read only when it is held by its fan-out.
func holdsOf(ctx context.Context, q *db.Queries, job db.ReadRunJobsRow) (holds, error) {
	s := ci.JobStatus(job.Status)
	if s != ci.JobPending && s != ci.JobHeld {
		return holds{}, nil
	}
	h, err := readHolds(ctx, q, job.RunID, nil)
	if err != nil || s != ci.JobHeld || h.jobs[job.ID] != nil {
		return h, err
	}
	jobs, err := q.ReadRunJobs(ctx, job.RunID)
	if err != nil {
		return h, err
	}
	return h, h.readTurns(ctx, q, job.RunID, jobs)
}
