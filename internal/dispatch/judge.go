package dispatch

import (
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

// clock is the instant that assignments are judged at.
type clock struct {
	now      int64
	ready    int64 // since when this coordinator is ready; 0 = not yet
	settings Settings
}

// assignmentFate is what is to become of an open assignment.
type assignmentFate int

const (
	assignmentFine     assignmentFate = iota + 1
	assignmentNotAcked                // the agent did not answer (QUE-10)
	assignmentLost                    // its link was lost for longer than the grace (D17)
	assignmentEnded                   // its compute is ending or gone
	assignmentStale                   // it is connected and says nothing about the job (STL-2)
)

// judge decides about one open assignment. The coordinator's own downtime never counts against an agent: every clock starts
// no earlier than when this coordinator became ready (D17).
func judge(a db.DispatchDueAssignmentsRow, c clock) assignmentFate {
	switch ci.AgentState(a.AgentState) {
	case ci.AgentEnding, ci.AgentGone:
		return assignmentEnded
	}
	if c.ready == 0 {
		return assignmentFine
	}
	passed := func(since, grace int64) bool { return c.now >= max(since, c.ready)+grace }
	if a.LinkLostAt.Valid {
		if passed(a.LinkLostAt.Int64, c.settings.RecoveryGrace.Milliseconds()) {
			return assignmentLost
		}
		return assignmentFine // nothing can be expected of it before it is back
	}
	ack := c.settings.AckTimeout.Milliseconds()
	if a.State == "assigned" && !a.StartedAt.Valid && passed(a.AckBy-ack, ack) {
		return assignmentNotAcked
	}
	if active(ci.JobStatus(a.JobStatus)) && a.HeartbeatAt.Valid && passed(a.HeartbeatAt.Int64, c.settings.JobStale.Milliseconds()) {
		return assignmentStale
	}
	return assignmentFine
}

// active reports whether heartbeats are expected. A recovering job whose agent has its link again is: somebody died between
// taking the link and taking the job back.
func active(s ci.JobStatus) bool {
	return s == ci.JobRunning || s == ci.JobRecovering || s == ci.JobCancelling
}
