package read

import (
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

// assignments is which agent had which job when.
func (t *timeline) assignments() {
	for _, a := range t.f.assigned {
		t.add(a.CreatedAt, atAssigned, a.JobID, "assigned to agent %s%s", a.AgentID, agentPlace(a)).Link = link("agent", a.AgentID)
		if a.SentAt.Valid {
			t.add(a.SentAt.Int64, atSent, a.JobID, "sent to agent %s", a.AgentID)
		}
		if a.AckedAt.Valid {
			t.add(a.AckedAt.Int64, atAcked, a.JobID, "agent %s accepted it", a.AgentID)
		}
		if a.EndedAt.Valid && a.EndReason != "finished" {
			t.add(a.EndedAt.Int64, atReleased, a.JobID, "taken from agent %s: %s", a.AgentID, a.EndReason)
		}
	}
}

func agentPlace(a db.TimelineAssignmentsRow) string {
	if a.Scaler == "" {
		return ""
	}
	return fmt.Sprintf(" of scaler %s on %s", a.Scaler, nodeName(a.NodeName, a.NodeID))
}

func nodeName(name, id string) string {
	if name != "" {
		return name
	}
	return id
}

// launches are the agents that were started for the run's jobs.
func (t *timeline) launches() {
	queued := map[string]int64{}
	for _, j := range t.f.jobs {
		if j.QueuedAt.Valid {
			queued[j.ID] = j.QueuedAt.Int64
		}
	}
	for _, l := range t.f.launches {
		job := l.BoundJobID.String
		if l.RequestedAt < queued[job] {
			continue // it was there before the job
		}
		t.add(l.RequestedAt, atLaunch, job, "agent %s is started for it by scaler %s on %s", l.ID, l.Scaler, nodeName(l.NodeName, l.NodeID)).Link = link("agent", l.ID)
		switch {
		case l.RegisteredAt.Valid:
			t.add(l.RegisteredAt.Int64, atOnline, job, "agent %s is online", l.ID)
		case l.EndedAt.Valid:
			text := l.GoneReason
			if l.Error != "" {
				text += ": " + l.Error
			}
			t.add(l.EndedAt.Int64, atNoAgent, job, "agent %s never came: %s", l.ID, text)
		}
	}
}

// steps are those that failed, those that run, and all when they are asked for.
func (t *timeline) steps() {
	for _, s := range t.f.steps {
		status := ci.StepStatus(s.Status)
		if !s.StartedAt.Valid {
			continue
		}
		if !status.Terminal() {
			t.add(s.StartedAt.Int64, atStep, s.JobID, "step %d %q runs", s.Idx, s.Name)
			continue
		}
		if status != ci.StepFailed && status != ci.StepCancelled && !t.f.allSteps {
			continue
		}
		text := fmt.Sprintf("step %d %q: %s", s.Idx, s.Name, s.Status)
		if s.ExitCode.Valid && s.ExitCode.Int64 != 0 {
			text += fmt.Sprintf(" with exit code %d", s.ExitCode.Int64)
		}
		if s.Allowed {
			text += ", which is allowed"
		}
		if s.FinishedAt.Valid {
			t.add(s.FinishedAt.Int64, atStep, s.JobID, "%s", text)
		} else {
			t.add(s.StartedAt.Int64, atStep, s.JobID, "%s", text)
		}
	}
}

func (t *timeline) noted() {
	for _, n := range t.f.notes {
		e := t.add(n.At, n.Kind, n.JobID, "%s", n.Detail)
		if n.Actor != "kici" {
			e.Actor = n.Actor
		}
	}
}

// statuses is what was told to the forge.
func (t *timeline) statuses() {
	for _, s := range t.f.statuses {
		if s.PostedAt.Valid && s.State != "" {
			t.add(s.PostedAt.Int64, atStatus, s.JobID, "commit status %s is %s", s.Context, s.State)
		}
		switch {
		case s.GaveUpAt.Valid:
			t.add(s.GaveUpAt.Int64, atNoStatus, s.JobID, "commit status %s was given up: %s", s.Context, s.LastError)
		case s.FailingSince.Valid:
			t.add(s.FailingSince.Int64, atNoStatus, s.JobID, "commit status %s cannot be posted: %s", s.Context, s.LastError)
		}
	}
}

// effects is what the run caused elsewhere.
func (t *timeline) effects() {
	for _, e := range t.f.emitted {
		text := fmt.Sprintf("event %s was emitted", e.EventName)
		switch {
		case !e.MatchOutcome.Valid:
			text += "; it is not delivered yet"
		case e.MatchedCount.Int64 > 0:
			text += fmt.Sprintf("; it started %d", e.MatchedCount.Int64)
		default:
			text += "; it started nothing: " + e.MatchOutcome.String
		}
		t.add(e.CreatedAt, atEmitted, e.SourceJobID, "%s", text).Link = link("event", e.ID)
	}
	for _, s := range t.f.started {
		t.add(s.CreatedAt, atOtherRun, "", "an event of this run started %s#%d of %s", s.Repo, s.Number, s.Workflow).Link = link("run", s.ID)
	}
	for _, r := range t.f.reruns {
		e := t.add(r.CreatedAt, atRerun, "", "it was run again as %s#%d", r.Repo, r.Number)
		e.Actor, e.Link = r.Actor, link("run", r.ID)
	}
}

func (t *timeline) end() {
	r := t.f.run
	if !r.FinishedAt.Valid {
		return
	}
	text := "the run ended: " + ci.RunStatus(r.Status).Display().Word
	if r.FailureReason != "" {
		text += ": " + r.FailureReason
	}
	if r.FailureClass != "" {
		text += " (" + r.FailureClass + ")"
	}
	t.add(r.FinishedAt.Int64, atRunEnded, "", "%s", text)
}
