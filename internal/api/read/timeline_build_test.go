package read

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

func ms(v int64) sql.NullInt64    { return sql.NullInt64{Int64: v, Valid: true} }
func str(v string) sql.NullString { return sql.NullString{String: v, Valid: true} }

// story is a run to which everything happened that can.
func story() timelineFacts {
	f := timelineFacts{
		now: 9000, allSteps: true,
		run: db.TimelineRunRow{
			ID: "r1", Number: 482, Repo: "acme/shop", Workflow: "ci", Status: "failed", Actor: "ada", TriggerEvent: "push", DeliveryID: "d1", CreatedAt: 100,
			StartedAt: ms(250), FinishedAt: ms(900), FailureReason: "test: step \"go test\" failed", FailureClass: "step_failure", ReceivedAt: ms(90),
			DeliveryKind: str("github"), DeliveryEvent: str("push"),
			MatchedTrigger: `{"matched":true,"trigger":0,"triggerType":"push","checks":[{"trigger":0,"check":"branches","pattern":"main","value":"main","passed":true}]}`,
		},
		jobs: []db.TimelineJobsRow{
			{ID: "a", Name: "build", Status: "success", CreatedAt: 100, ReadyAt: ms(100), QueuedAt: ms(100), StartedAt: ms(250), FinishedAt: ms(400), Attempt: 2, AgentID: str("g2"), Shape: "s"},
			{ID: "b", Name: "test", Status: "failed", CreatedAt: 100, ReadyAt: ms(400), QueuedAt: ms(400), StartedAt: ms(420), FinishedAt: ms(900), Attempt: 1, AgentID: str("g3"), Shape: "s", UnroutableSince: ms(405)},
			{ID: "c", Name: "extra", Status: "cancelled", CreatedAt: 300, FinishedAt: ms(700), Error: "the run is being cancelled"},
		},
		needs: []db.TimelineNeedsRow{{JobID: "b", NeedsID: "a", NeedsName: "build", FinishedAt: ms(400)}},
		assigned: []db.TimelineAssignmentsRow{
			{JobID: "a", Attempt: 1, AgentID: "g1", CreatedAt: 150, SentAt: ms(151), EndedAt: ms(180), EndReason: "not_acked", Scaler: "local", NodeID: "n1", NodeName: "hydra"},
			{JobID: "a", Attempt: 2, AgentID: "g2", CreatedAt: 220, SentAt: ms(221), AckedAt: ms(222), EndedAt: ms(400), EndReason: "finished"},
			{JobID: "b", Attempt: 1, AgentID: "g3", CreatedAt: 410, EndedAt: ms(900), EndReason: "finished"},
		},
		launches: []db.TimelineLaunchesRow{
			{BoundJobID: str("a"), ID: "g1", Scaler: "local", NodeID: "n1", NodeName: "hydra", RequestedAt: 110, RegisteredAt: ms(140)},
			{BoundJobID: str("a"), ID: "g0", Scaler: "local", NodeID: "n1", RequestedAt: 105, EndedAt: ms(108), GoneReason: "launch_failed", Error: "no such file"},
			{BoundJobID: str("b"), ID: "warm", Scaler: "local", RequestedAt: 50},
		},
		steps: []db.TimelineStepsRow{
			{JobID: "b", Idx: 1, Name: "go test", Status: "failed", StartedAt: ms(430), FinishedAt: ms(890), ExitCode: ms(2)},
			{JobID: "b", Idx: 2, Name: "later", Status: "skipped"},
		},
		statuses: []db.TimelineStatusesRow{
			{Context: "kici/ci", State: "failure", PostedAt: ms(950)},
			{Context: "kici/ci/job/test", JobID: "b", FailingSince: ms(951), LastError: "denied", GaveUpAt: ms(952)},
		},
		emitted: []db.TimelineEmittedRow{{ID: "e1", EventName: "deploy.done", SourceJobID: "a", CreatedAt: 390, MatchOutcome: str("matched"), MatchedCount: ms(1)}},
		started: []db.TimelineStartedRow{{EventID: "e1", ID: "r2", Repo: "acme/site", Number: 7, Workflow: "deploy", CreatedAt: 395}},
		cause:   []db.TimelineCauseRow{{ID: "e0", EventName: "nightly.done"}},
		reruns:  []db.TimelineRerunsRow{{ID: "r3", Repo: "acme/shop", Number: 483, Actor: "bob", CreatedAt: 2000}},
		reasons: map[string][]db.TimelineReasonsRow{"s": {
			{At: 50, Reasons: `[{"kind":"cap","text":"local is full"}]`},
			{At: 120, Reasons: `[{"kind":"backoff","text":"local rests"}]`},
			{At: 160, Reasons: `[]`},
		}},
	}
	for i, k := range ci.NoteKinds {
		job := "a"
		if k == ci.NoteCancelAsked {
			job = ""
		}
		f.notes = append(f.notes, db.RunNotesRow{ID: k, At: 500 + int64(i), JobID: job, Kind: k, Actor: map[bool]string{true: "ann", false: "kici"}[job == ""], Detail: "noted " + k})
	}
	return f
}

func lines(entries []entry, job string) (out []string) {
	for _, e := range entries {
		if e.JobID != job || strings.HasPrefix(e.Text, "noted ") {
			continue
		}
		line := e.Kind + ": " + e.Text
		if e.Until != nil {
			line += " until " + e.Until.Format(".000")
		}
		if e.Actor != "" {
			line += " by " + e.Actor
		}
		out = append(out, line)
	}
	return out
}

func TestTimelineTellsTheStory(t *testing.T) {
	entries, cut := buildTimeline(story())
	if cut != "" {
		t.Errorf("cut %q", cut)
	}
	want := []string{
		"delivered: a github delivery arrived: push",
		"caused: event nightly.done matched this workflow",
		`matched: the trigger "push" of the workflow matched: branches "main" matches "main"`,
		"created: run acme/shop#482 of ci was created by push, with 2 jobs by ada",
		"run_started: the run began with its first job",
		"started_run: an event of this run started acme/site#7 of deploy",
		`run_finished: the run ended: failed: test: step "go test" failed (step_failure)`,
		"status_posted: commit status kici/ci is failure",
		"rerun: it was run again as acme/shop#483 by bob",
	}
	if d := cmp.Diff(want, lines(entries, "")); d != "" {
		t.Errorf("the run: %s", d)
	}
	want = []string{
		"queued: it waits for an agent",
		"waiting: it waited because local is full until .120",
		"agent_requested: agent g0 is started for it by scaler local on n1",
		"agent_failed: agent g0 never came: launch_failed: no such file",
		"agent_requested: agent g1 is started for it by scaler local on hydra",
		"waiting: it waited because local rests until .150",
		"agent_online: agent g1 is online",
		"assigned: assigned to agent g1 of scaler local on hydra",
		"sent: sent to agent g1",
		"unassigned: taken from agent g1: not_acked",
		"assigned: assigned to agent g2",
		"sent: sent to agent g2",
		"acked: agent g2 accepted it",
		"started: agent g2 began to work on it",
		"event_emitted: event deploy.done was emitted; it started 1",
		"finished: it ended: success",
	}
	if d := cmp.Diff(want, lines(entries, "a")); d != "" {
		t.Errorf("build: %s", d)
	}
	want = []string{
		"ready: what it needs has ended; the last was build",
		"queued: it waits for an agent",
		"unroutable: nothing in the cluster can run it: it ends as unroutable unless that changes",
		"assigned: assigned to agent g3",
		"started: agent g3 began to work on it",
		`step: step 1 "go test": failed with exit code 2`,
		"finished: it ended: failed",
		"status_failed: commit status kici/ci/job/test was given up: denied",
	}
	if d := cmp.Diff(want, lines(entries, "b")); d != "" {
		t.Errorf("test: %s", d)
	}
	want = []string{"added: the job was added to the run", "finished: it ended: cancelled: the run is being cancelled"}
	if d := cmp.Diff(want, lines(entries, "c")); d != "" {
		t.Errorf("extra: %s", d)
	}
}

// Every kind of entry appears in the story, in order of time, and no two have the same place.
func TestTimelineHasEveryKind(t *testing.T) {
	entries, _ := buildTimeline(story())
	seen := map[string]bool{}
	places := map[position]bool{}
	for i, e := range entries {
		seen[e.Kind] = true
		p := position{e.at, e.key}
		if places[p] {
			t.Errorf("two entries at %v", p)
		}
		places[p] = true
		if i > 0 && !e.after(position{entries[i-1].at, entries[i-1].key}) {
			t.Errorf("%s is out of order", e.Text)
		}
		if e.Text == "" {
			t.Errorf("%s says nothing", e.Kind)
		}
	}
	for k := range ranks {
		if !seen[k] {
			t.Errorf("no entry of kind %s", k)
		}
	}
	for _, k := range ci.NoteKinds {
		if _, ranked := ranks[k]; !ranked {
			t.Errorf("the note %s has no place in the order", k)
		}
	}
}

func TestTimelineOfAWaitThatGoesOn(t *testing.T) {
	f := timelineFacts{
		now: 500, run: db.TimelineRunRow{ID: "r", CreatedAt: 100},
		jobs:    []db.TimelineJobsRow{{ID: "a", Name: "a", Status: "queued", CreatedAt: 100, QueuedAt: ms(100), ReadyAt: ms(100), Shape: "s"}},
		reasons: map[string][]db.TimelineReasonsRow{"s": {{At: 130, Reasons: `[{"text":"1"},{"text":"2"},{"text":"3"},{"text":"4"}]`}}},
	}
	entries, _ := buildTimeline(f)
	i := slices.IndexFunc(entries, func(e entry) bool { return e.Kind == atWaiting })
	if i < 0 || entries[i].Until != nil || entries[i].Text != "it waited because 1; 2; 3; and 1 more reasons" {
		t.Fatalf("%+v", entries)
	}
}

// TestTimelineOfAReasonWhoseDetailsChange: one entry, from the first time to the last.
func TestTimelineOfAReasonWhoseDetailsChange(t *testing.T) {
	f := timelineFacts{
		now: 500, run: db.TimelineRunRow{ID: "r", CreatedAt: 100},
		jobs: []db.TimelineJobsRow{{ID: "a", Name: "a", Status: "queued", CreatedAt: 100, QueuedAt: ms(110), ReadyAt: ms(100), Shape: "s"}},
		reasons: map[string][]db.TimelineReasonsRow{"s": {
			{At: 130, Reasons: `[{"text":"nobody offers gpu"}]`},
			{At: 140, Reasons: `[{"text":"nobody offers gpu"},{"text":"one agent is busy"}]`},
			{At: 150, Reasons: `[{"text":"the scaler is full"}]`},
			{At: 160, Reasons: `[{"text":"nobody offers gpu"}]`},
		}},
	}
	entries, _ := buildTimeline(f)
	want := []string{
		"queued: its turn has come: it waits for an agent",
		"waiting: it waited because nobody offers gpu until .150",
		"waiting: it waited because the scaler is full until .160",
		"waiting: it waited because nobody offers gpu",
	}
	if d := cmp.Diff(want, lines(entries, "a")); d != "" {
		t.Error(d)
	}
}

func TestTimelineOfAKeptResult(t *testing.T) {
	f := timelineFacts{run: db.TimelineRunRow{ID: "r", CreatedAt: 1000}, jobs: []db.TimelineJobsRow{
		{ID: "a", Name: "a", Status: "success", CreatedAt: 1000, StartedAt: ms(10), FinishedAt: ms(20)},
	}}
	entries, _ := buildTimeline(f)
	if got := lines(entries, "a"); len(got) != 1 || !strings.Contains(got[0], "keeps the result of the earlier run, success") {
		t.Fatalf("%q", got)
	}
}
