package sim

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/placement"
)

// whyAnswer is what the product says of a job (client.Why).
type whyAnswer struct {
	Status   string      `json:"status"`
	Headline string      `json:"headline"`
	Reasons  []whyReason `json:"reasons"`
}

type whyReason struct {
	Kind  string `json:"kind"`
	Agent string `json:"agent"`
	Job   string `json:"job"`
	Text  string `json:"text"`
}

// jobFacts is what the rows say of a job that has not ended.
type jobFacts struct {
	Status, Agent string
	RunStatus     string
	Bound         []string // agents that were started for it
	Needs         []string // jobs that it needs and that have not ended
	Siblings      int      // of its fan-out that have passed the window and have not ended
	Run, Own      place    // what its run and itself wait for in a concurrency group
	Nowhere       bool     // nothing has its labels
	Said          []string // sentences that placement has left about jobs of its kind
}

// place is one that was not taken yet.
type place struct {
	State, Superseded string // "" when there is none
	Others            int    // that hold one, or wait before it
}

// untrue says what is wrong with the reason of a job. What is passing may be so for a moment, but not for long.
func untrue(f jobFacts, w whyAnswer) (wrong string, passing bool) {
	if w.Headline == "" || slices.ContainsFunc(w.Reasons, func(r whyReason) bool { return strings.TrimSpace(r.Text) == "" }) {
		return "an empty reason", false
	}
	if w.Status != f.Status {
		return "it is said to be " + w.Status, false
	}
	switch f.Status {
	case "pending":
		return untruePending(f, w)
	case "held":
		return untrueHeld(f, w)
	case "queued":
		return untrueQueued(f, w)
	case "running", "recovering":
		if !w.names(f.Agent) {
			return "its agent is not named", false
		}
	case "cancelling":
		if !strings.Contains(w.Headline, "cancel") {
			return "it is being cancelled", false
		}
	default:
		return "a status that nobody expects", false
	}
	return "", false
}

func untruePending(f jobFacts, w whyAnswer) (string, bool) {
	said := w.jobs()
	switch {
	case f.Run.State != "":
		return f.Run.untrue(w)
	case !slices.Equal(said, f.Needs):
		return fmt.Sprintf("it needs %v", f.Needs), false
	case len(f.Needs) > 0:
		return "", false
	case f.RunStatus == "cancelling" && !strings.Contains(w.Headline, "cancel"):
		return "its run is being cancelled", false
	}
	return "nothing holds it", true
}

func untrueHeld(f jobFacts, w whyAnswer) (string, bool) {
	switch {
	case f.Own.State != "":
		return f.Own.untrue(w)
	case strings.Contains(w.Headline, "approval"):
		return "there are no approvals", false
	case !w.has("max_parallel"):
		return "it waits for its turn in the matrix", false
	case f.Siblings == 0:
		return "nothing holds it", true
	}
	return "", false
}

func untrueQueued(f jobFacts, w whyAnswer) (string, bool) {
	switch {
	case f.Agent != "" && !w.names(f.Agent):
		return "agent " + f.Agent + " has it", false
	case f.Agent != "":
		return "", false
	case w.has("running"):
		return "no agent has it", false
	case len(f.Bound) > 0 && !slices.ContainsFunc(f.Bound, w.names):
		return fmt.Sprintf("agents %v were started for it", f.Bound), false
	case len(f.Bound) > 0:
		return "", false
	case w.has("booting") && slices.ContainsFunc(w.Reasons, func(r whyReason) bool { return strings.Contains(r.Text, "is starting for it") }):
		return "no agent is starting for it", false
	case !w.says(f.Said):
		return fmt.Sprintf("placement says %q", f.Said), false
	case f.Nowhere && !w.has("no_offer"):
		return "nothing has its labels", true
	case len(w.Reasons) == 0:
		return "it waits for nothing", true
	}
	return "", false
}

// untrue: somebody who waits for a group waits for somebody.
func (p place) untrue(w whyAnswer) (string, bool) {
	switch {
	case !w.has("concurrency"):
		return "a concurrency group holds it", false
	case p.State == "queued" && p.Superseded == "" && p.Others == 0:
		return "nobody holds the group", true
	case p.State == "active" || p.Superseded != "":
		return "it is about to go on", true
	}
	return "", false
}

func (w whyAnswer) has(kind string) bool {
	return slices.ContainsFunc(w.Reasons, func(r whyReason) bool { return r.Kind == kind })
}

func (w whyAnswer) names(agent string) bool {
	return slices.ContainsFunc(w.Reasons, func(r whyReason) bool { return r.Agent == agent })
}

// says reports whether all of these sentences are among the reasons.
func (w whyAnswer) says(texts []string) bool {
	for _, text := range texts {
		if !slices.ContainsFunc(w.Reasons, func(r whyReason) bool { return r.Text == text }) {
			return false
		}
	}
	return true
}

// jobs are those that it is said to need, in order.
func (w whyAnswer) jobs() (out []string) {
	for _, r := range w.Reasons {
		if r.Kind == "need" {
			out = append(out, r.Job)
		}
	}
	slices.Sort(out)
	return out
}

// readFacts reads what the rows say of a job; found is false when it has ended.
func readFacts(pool *database, id string) (f jobFacts, found bool, err error) {
	var runID, base string
	err = pool.QueryRowContext(context.Background(), `SELECT j.status, COALESCE(j.agent_id, ''), r.status, j.run_id, j.base_name, j.labels LIKE '%mainframe%'
		FROM execution_jobs j JOIN execution_runs r ON r.id = j.run_id WHERE j.id = ? AND j.finished_at IS NULL`, id).
		Scan(&f.Status, &f.Agent, &f.RunStatus, &runID, &base, &f.Nowhere)
	if err == sql.ErrNoRows { //nolint:errorlint // it is never wrapped here
		return f, false, nil
	}
	if err != nil {
		return f, false, err
	}
	if f.Bound, err = column(pool, "SELECT id FROM agents WHERE bound_job_id = ? AND state NOT IN ('gone', 'ending') ORDER BY id", id); err != nil {
		return f, false, err
	}
	f.Needs, err = column(pool, `SELECT n.needs_id FROM execution_job_needs n JOIN execution_jobs u ON u.id = n.needs_id
		WHERE n.job_id = ? AND u.finished_at IS NULL ORDER BY n.needs_id`, id)
	if err != nil {
		return f, false, err
	}
	err = pool.QueryRowContext(context.Background(), `SELECT COUNT(*) FROM execution_jobs j WHERE j.run_id = ? AND j.base_name = ? AND j.id <> ? AND j.finished_at IS NULL
		AND (j.status NOT IN ('pending', 'held') OR EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.job_id = j.id AND s.state <> 'released'))`,
		runID, base, id).Scan(&f.Siblings)
	if err != nil {
		return f, false, err
	}
	if f.Said, err = readSaid(pool, id); err != nil {
		return f, false, err
	}
	if f.Run, err = readPlace(pool, runID, ""); err != nil {
		return f, false, err
	}
	f.Own, err = readPlace(pool, runID, id)
	return f, true, err
}

// readSaid is what placement has left about a job that waits in the queue.
func readSaid(pool *database, id string) (texts []string, err error) {
	found, err := column(pool, "SELECT s.reasons FROM shape_reasons s JOIN execution_jobs j ON j.shape = s.shape WHERE j.id = ? AND j.status = 'queued' AND j.agent_id IS NULL", id)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var list []placement.Reason
	err = json.Unmarshal([]byte(found[0]), &list)
	for _, r := range list {
		texts = append(texts, r.Text)
	}
	return texts, err
}

func column(pool *database, query string, args ...any) (out []string, err error) {
	found, err := rows(pool, query, args...)
	for _, r := range found {
		out = append(out, r[0])
	}
	return out, err
}

func readPlace(pool *database, runID, jobID string) (p place, err error) {
	err = pool.QueryRowContext(context.Background(), `SELECT s.state, s.superseded_by, (SELECT COUNT(*) FROM concurrency_slots o WHERE o.org_id = s.org_id
		AND o.routing_key = s.routing_key AND o.group_key = s.group_key AND o.id <> s.id
		AND (o.state = 'active' OR o.state = 'queued' AND (o.created_at, o.id) < (s.created_at, s.id)))
		FROM concurrency_slots s WHERE s.run_id = ? AND s.job_id = ? AND s.begun = FALSE AND s.state <> 'released'`, runID, jobID).
		Scan(&p.State, &p.Superseded, &p.Others)
	if err == sql.ErrNoRows { //nolint:errorlint // it is never wrapped here
		err = nil
	}
	return p, err
}
