package event

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

const (
	keyA = "generic:acme:a"
	keyB = "generic:acme:b"
)

// reg is a candidate: its id says whose it is.
func reg(id, key, repo string, on ...lock.Trigger) candidate {
	return candidate{
		reg:      db.WorkflowRegistration{ID: id, OrgID: "acme", RoutingKey: key, Repo: repo, Workflow: id, DefaultBranch: "main", CommitSha: "abc"},
		workflow: &lock.Workflow{Name: id, On: on},
	}
}

func onEvent(name string) lock.Trigger {
	return lock.Trigger{Type: workflow.TypeKiciEvent, EventName: name}
}

func onComplete(status ...string) lock.Trigger {
	return lock.Trigger{Type: workflow.TypeWorkflowComplete, Status: status}
}

func onLifecycle(events ...string) lock.Trigger {
	return lock.Trigger{Type: workflow.TypeLifecycle, Events: events}
}

func onBatch(ms int64) lock.Trigger {
	return lock.Trigger{Type: workflow.TypeFailedBatch, AccumulateForMs: ms}
}

func onCron(cron, zone string) lock.Trigger {
	return lock.Trigger{Type: workflow.TypeSchedule, Cron: cron, Timezone: zone}
}

// fromA is an event that a run of repository a emitted.
func fromA(name, payload string) db.KiciEvent {
	if payload == "" {
		payload = "{}"
	}
	return db.KiciEvent{
		ID: "e", OrgID: "acme", EventName: name, Payload: payload, SourceRepo: "a", SourceRoutingKey: keyA, SourceRunID: "run-1", TargetRepos: "[]",
		Emitter: EmitterStep,
	}
}

func with(e db.KiciEvent, change func(*db.KiciEvent)) db.KiciEvent { change(&e); return e }

// lets is a trust row from a to b for names; nil is null.
func lets(names *string, change ...func(*db.CrossRepoTrust)) []db.CrossRepoTrust {
	t := db.CrossRepoTrust{ID: "t", OrgID: "acme", SourceRoutingKey: keyA, SourceRepo: "a", TargetRoutingKey: keyB, TargetRepo: "b", Enabled: true}
	if names != nil {
		t.EventNames = sql.NullString{String: *names, Valid: true}
	}
	for _, c := range change {
		c(&t)
	}
	return []db.CrossRepoTrust{t}
}

func text(s string) *string { return &s }

func TestDecide(t *testing.T) {
	done := onEvent("done")
	failedRun := fromA(WorkflowComplete, `{"workflowName":"ci","status":"failed"}`)
	failedRun.Emitter = EmitterOrchestrator
	fire := db.KiciEvent{
		ID: "e", OrgID: "acme", EventName: ScheduleFire, SourceRoutingKey: keyB, SourceRepo: "b", RegistrationID: "w2", TargetRepos: "[]", Emitter: EmitterOrchestrator,
		Payload: `{"registrationId":"w2","cronExpression":"0 4 * * *","timezone":"Europe/Berlin"}`,
	}
	operator := with(fromA("done", ""), func(e *db.KiciEvent) {
		e.Emitter, e.SourceRepo, e.SourceRoutingKey, e.SourceRunID = EmitterOperator, "", "", ""
	})
	tests := []struct {
		name   string
		facts  facts
		starts string // ids of registrations
		holds  string // … that collect the failure
		want   string
	}{
		{"nobody waits", facts{event: fromA("done", "")}, "", "", OutcomeNoRegistration},
		{"the same routing key needs no trust", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyA, "a", done)}}, "w1", "", OutcomeMatched},
		{"every registration that matches", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyA, "a", done), reg("w2", keyA, "a2", done), reg("w3", keyA, "a", onEvent("other"))}}, "w1 w2", "", OutcomeMatched},
		{"another name", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyA, "a", onEvent("other"))}}, "", "", OutcomeNoTrigger},
		{"another organisation, whatever trust says (EVT-22)", facts{event: with(fromA("done", ""), func(e *db.KiciEvent) { e.OrgID = "evil" }), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(nil)}, "", "", OutcomeNoTarget},

		// Addressees and targets (EVT-4, EVT-20).
		{"targets leave others out", facts{event: with(fromA("done", ""), func(e *db.KiciEvent) { e.TargetRepos = `["a2"]` }), candidates: []candidate{reg("w1", keyA, "a", done), reg("w2", keyA, "a2", done)}}, "w2", "", OutcomeMatched},
		{"targets leave all out", facts{event: with(fromA("done", ""), func(e *db.KiciEvent) { e.TargetRepos = `["zzz"]` }), candidates: []candidate{reg("w1", keyA, "a", done)}}, "", "", OutcomeNoTarget},
		{"targets that cannot be read reach nobody", facts{event: with(fromA("done", ""), func(e *db.KiciEvent) { e.TargetRepos = `{` }), candidates: []candidate{reg("w1", keyA, "a", done)}}, "", "", OutcomeNoTarget},
		{"a fire is for one", facts{event: fire, candidates: []candidate{reg("w1", keyB, "b", onCron("0 4 * * *", "Europe/Berlin")), reg("w2", keyB, "b", onCron("0 4 * * *", "Europe/Berlin"))}}, "w2", "", OutcomeMatched},
		{"a fire by its payload alone", facts{event: with(fire, func(e *db.KiciEvent) { e.RegistrationID = "" }), candidates: []candidate{reg("w1", keyB, "b", onCron("0 4 * * *", "Europe/Berlin")), reg("w2", keyB, "b", onCron("0 4 * * *", "Europe/Berlin"))}}, "w2", "", OutcomeMatched},
		{"a fire that names nobody", facts{event: with(fire, func(e *db.KiciEvent) { e.RegistrationID, e.Payload = "", `{}` }), candidates: []candidate{reg("w1", keyB, "b", onCron("", ""))}}, "", "", OutcomeNoTarget},
		{"a fire of another zone (WF-18)", facts{event: fire, candidates: []candidate{reg("w2", keyB, "b", onCron("0 4 * * *", "UTC"))}}, "", "", OutcomeNoTrigger},
		{"a fire needs no trust", facts{event: with(fire, func(e *db.KiciEvent) { e.SourceRoutingKey = "" }), candidates: []candidate{reg("w2", keyB, "b", onCron("0 4 * * *", "Europe/Berlin"))}}, "w2", "", OutcomeMatched},

		// Trust (EVT-21).
		{"no row", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}}, "", "", OutcomeTrust},
		{"a row for every name", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(nil)}, "w1", "", OutcomeMatched},
		{"a row for no name", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(text("[]"))}, "", "", OutcomeTrust},
		{"a row with a glob", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(text(`["x","do*"]`))}, "w1", "", OutcomeMatched},
		{"a row with other globs", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(text(`["deploy.*"]`))}, "", "", OutcomeTrust},
		{"a malformed row", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(text(`"done`))}, "", "", OutcomeTrust},
		{"a malformed glob", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(text(`["[do"]`))}, "", "", OutcomeTrust},
		{"a disabled row", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(nil, func(t *db.CrossRepoTrust) { t.Enabled = false })}, "", "", OutcomeTrust},
		{"a row for another target key", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(nil, func(t *db.CrossRepoTrust) { t.TargetRoutingKey = "" })}, "", "", OutcomeTrust},
		{"a row for another target", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b2", done)}, trust: lets(nil)}, "", "", OutcomeTrust},
		{"a row of another organisation (XC-45)", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done)}, trust: lets(nil, func(t *db.CrossRepoTrust) { t.OrgID = "evil" })}, "", "", OutcomeTrust},
		{"a repository without a routing key is not trusted", facts{event: with(fromA("done", ""), func(e *db.KiciEvent) { e.SourceRoutingKey = "" }), candidates: []candidate{reg("w1", "", "b", done)}}, "", "", OutcomeTrust},
		{"an operator speaks for the organisation", facts{event: operator, candidates: []candidate{reg("w1", keyB, "b", done)}}, "w1", "", OutcomeMatched},
		{"an operator for one source does not", facts{event: with(operator, func(e *db.KiciEvent) { e.SourceRoutingKey = keyA }), candidates: []candidate{reg("w1", keyB, "b", done)}}, "", "", OutcomeTrust},

		// Which stage decides (EVT-25).
		{"blocked and failed: the trigger decided", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done), reg("w2", keyA, "a", onEvent("other"))}}, "", "", OutcomeNoTrigger},
		{"blocked and dispatched", facts{event: fromA("done", ""), candidates: []candidate{reg("w1", keyB, "b", done), reg("w2", keyA, "a", done)}}, "w2", "", OutcomeMatched},

		// Lifecycle (EVT-10, WF-17).
		{"the end of a run", facts{event: failedRun, candidates: []candidate{reg("w1", keyA, "a", onComplete("failed")), reg("w2", keyA, "a", onComplete("success")), reg("w3", keyA, "a", onLifecycle("workflow_complete"))}}, "w1 w3", "", OutcomeMatched},
		{"job_failed of a failed job", facts{event: fromA(JobComplete, `{"status":"timed_out_stale"}`), candidates: []candidate{reg("w1", keyA, "a", onLifecycle("job_failed"))}}, "w1", "", OutcomeMatched},
		{"job_failed of a good job", facts{event: fromA(JobComplete, `{"status":"success"}`), candidates: []candidate{reg("w1", keyA, "a", onLifecycle("job_failed"))}}, "", "", OutcomeNoTrigger},
		{"lifecycle of other sources", facts{event: failedRun, candidates: []candidate{reg("w1", keyA, "a", lock.Trigger{Type: workflow.TypeLifecycle, Events: []string{"workflow_complete"}, Sources: []string{"zzz"}})}}, "", "", OutcomeNoTrigger},
		{"registration updated, both ways", facts{event: fromA(RegistrationUpdated, ""), candidates: []candidate{reg("w1", keyA, "a", onEvent(RegistrationUpdated)), reg("w2", keyA, "a", onLifecycle("registration_updated"))}}, "w1 w2", "", OutcomeMatched},

		// Batches (EVT-27, EVT-28).
		{"a failure is collected", facts{event: failedRun, candidates: []candidate{reg("w1", keyA, "a", onBatch(1000))}}, "", "w1", OutcomeBuffered},
		{"a failure is collected and dispatched", facts{event: failedRun, candidates: []candidate{reg("w1", keyA, "a", onBatch(1000)), reg("w2", keyA, "a", onComplete())}}, "w2", "w1", OutcomeMatched},
		{"buffered goes before blocked", facts{event: failedRun, candidates: []candidate{reg("w1", keyA, "a", onBatch(1000)), reg("w2", keyB, "b", onComplete())}}, "", "w1", OutcomeBuffered},
		{"success is not collected", facts{event: with(failedRun, func(e *db.KiciEvent) { e.Payload = `{"status":"success"}` }), candidates: []candidate{reg("w1", keyA, "a", onBatch(1000))}}, "", "", OutcomeNoTrigger},
		{"cancelled is not collected", facts{event: with(failedRun, func(e *db.KiciEvent) { e.Payload = `{"status":"cancelled"}` }), candidates: []candidate{reg("w1", keyA, "a", onBatch(1000))}}, "", "", OutcomeNoTrigger},
		{"what a failure started is not collected (XC-48)", facts{event: failedRun, candidates: []candidate{reg("w1", keyA, "a", onBatch(1000))}, origin: origin{byFailures: true}}, "", "", OutcomeNoTrigger},
		{"a failure of another key needs trust", facts{event: failedRun, candidates: []candidate{reg("w1", keyB, "b", onBatch(1000))}}, "", "", OutcomeTrust},
		{"a batch is for one", facts{event: db.KiciEvent{OrgID: "acme", EventName: FailedBatch, Payload: `{"registrationId":"w1"}`, RegistrationID: "w1", TargetRepos: "[]", SourceRoutingKey: keyA}, candidates: []candidate{reg("w1", keyA, "a", onBatch(1000)), reg("w2", keyA, "a", onBatch(1000))}}, "w1", "", OutcomeMatched},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := decide(tt.facts)
			var starts, holds []string
			for _, x := range v.targets {
				starts = append(starts, x.reg.ID)
				if !x.decision.Matched || x.event.Type == "" {
					t.Errorf("target %s has no decision: %+v", x.reg.ID, x.decision)
				}
			}
			for _, x := range v.buffers {
				holds = append(holds, x.reg.ID)
			}
			if got := strings.Join(starts, " "); got != tt.starts {
				t.Errorf("starts %q, want %q", got, tt.starts)
			}
			if got := strings.Join(holds, " "); got != tt.holds {
				t.Errorf("collects for %q, want %q", got, tt.holds)
			}
			if v.outcome != tt.want {
				t.Errorf("outcome %s, want %s", v.outcome, tt.want)
			}
		})
	}
}

func TestTheFirstTriggerOfTheFileIsRecorded(t *testing.T) {
	e := fromA(WorkflowComplete, `{"status":"failed"}`)
	c := reg("w1", keyA, "a", onLifecycle("workflow_complete"), onComplete("failed"))
	v := decide(facts{event: e, candidates: []candidate{c}})
	if len(v.targets) != 1 || v.targets[0].decision.Trigger != 0 || v.targets[0].event.Type != workflow.TypeLifecycle {
		t.Fatalf("targets %+v", v.targets)
	}
	c = reg("w1", keyA, "a", onComplete("failed"), onLifecycle("workflow_complete"))
	v = decide(facts{event: e, candidates: []candidate{c}})
	if len(v.targets) != 1 || v.targets[0].event.Type != workflow.TypeWorkflowComplete || v.targets[0].event.Action != "failed" {
		t.Fatalf("targets %+v", v.targets)
	}
}

func TestBranchOfTheRun(t *testing.T) {
	f := facts{origin: origin{branch: "feature"}}
	r := db.WorkflowRegistration{DefaultBranch: "main"}
	for name, want := range map[string]string{ScheduleFire: "main", FailedBatch: "", "done": "feature"} {
		f.event = db.KiciEvent{EventName: name, SourceRunID: "run-1"}
		if got := branchFor(f, r); got != want {
			t.Errorf("%s: branch %q, want %q", name, got, want)
		}
	}
}

func TestStartedByFailures(t *testing.T) {
	for event, want := range map[string]bool{
		`{"type":"workflows_failed_batch"}`:                                             true,
		`{"type":"workflow_complete","payload":{"status":"failed"}}`:                    true,
		`{"type":"workflow_complete","payload":{"status":"success"}}`:                   false,
		`{"type":"lifecycle","name":"workflow_complete","payload":{"status":"failed"}}`: true,
		`{"type":"lifecycle","name":"job_failed","payload":{"status":"failed"}}`:        false,
		`{"type":"push","payload":{"status":"failed"}}`:                                 false,
		`{`: false,
	} {
		if got := startedByFailures([]byte(event)); got != want {
			t.Errorf("%s: %v", event, got)
		}
	}
}

func TestRetryDelayIsFullJitter(t *testing.T) {
	for attempts, most := range map[int64]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 6: 160 * time.Second, 7: 5 * time.Minute, 60: 5 * time.Minute} {
		var low, high time.Duration = most, 0
		for i := range 2000 {
			d := retryDelay(fmt.Sprintf("event-%d", i), attempts)
			low, high = min(low, d), max(high, d)
		}
		if low < 0 || high >= most || low > most/20 || high < most*19/20 {
			t.Errorf("attempt %d: delays from %s to %s, want all of [0, %s)", attempts, low, high, most)
		}
	}
	if first := retryDelay("e", 3); first != retryDelay("e", 3) {
		t.Error("the same attempt has two delays")
	}
}

func TestCheckName(t *testing.T) {
	for name, code := range map[string]string{
		"deploy.done": "", "a": "", "größe/2": "", "registration.updated": "",
		"": CodeName, "a b": CodeName, "a\n": CodeName, "a\u202eb": CodeName, strings.Repeat("x", 201): CodeName, "\xff": CodeName,
		"__schedule_fire": CodeReserved, "__x": CodeReserved, "kici.scaler.scale-up": CodeReserved, "kici.": CodeReserved,
	} {
		err := CheckName(name)
		r, _ := err.(*Refused) //nolint:errorlint // it is made here
		if got := map[bool]string{true: ""}[err == nil]; err == nil && code != got || err != nil && r.Code != code {
			t.Errorf("%q: %v, want code %q", name, err, code)
		}
		if code == CodeReserved && !strings.Contains(err.Error(), `"`+Reserved(name)+`"`) {
			t.Errorf("%q: the message does not name the prefix: %v", name, err)
		}
	}
}

func TestPayloadIsABoundedObject(t *testing.T) {
	for payload, ok := range map[string]bool{
		``: true, ` `: true, `{}`: true, `{"a": [1]}`: true, `null`: false, `[]`: false, `1`: false, `{`: false, `{} {}`: false,
		`{"a":"` + strings.Repeat("x", MaxPayloadBytes) + `"}`:   false,
		`{"a":"` + strings.Repeat("x", MaxPayloadBytes-8) + `"}`: true,
		strings.Repeat(" ", MaxPayloadBytes) + `{}`:              true,
		strings.Repeat(" ", 4*MaxPayloadBytes) + `{}`:            false,
	} {
		out, refused := checkPayload([]byte(payload))
		if (refused == nil) != ok || ok && len(out) > MaxPayloadBytes {
			t.Errorf("%.40q (%d bytes): %v", payload, len(payload), refused)
		}
	}
}

func FuzzCheckPayload(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `null`, `{"a":"\u0000"}`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, refused := checkPayload(in)
		if refused != nil {
			return
		}
		again, refused := checkPayload(out)
		if refused != nil || string(again) != string(out) {
			t.Errorf("%q became %q, then %q (%v)", in, out, again, refused)
		}
	})
}
