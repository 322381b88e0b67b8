package read

import (
	"database/sql"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

func text(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func num(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: true} }

// Every status a job can have gets a sentence (DESIGN idea 4: nothing waits silently).
func TestHeadlines(t *testing.T) {
	code := 3
	failedStep := []client.Step{{Index: 1, Name: "lint", Status: "failed", Allowed: true}, {Index: 2, Name: "go test", Status: "failed", ExitCode: &code}}
	up := func(name string, s ci.JobStatus, runOn string) upstream {
		return upstream{id: "id-" + name, name: name, status: s, runOn: runOn}
	}
	agent := func(s ci.JobStatus) db.ReadRunJobsRow {
		return db.ReadRunJobsRow{Status: string(s), AgentID: text("a1"), AgentScaler: text("local"), AgentNode: text("hydra"), RecoverBy: num(3_661_000)}
	}
	for name, tc := range map[string]struct {
		f    whyFacts
		want string
	}{
		"pending, two needs": {whyFacts{job: db.ReadRunJobsRow{Status: "pending"}, up: []upstream{
			up("a", ci.JobRunning, ",success,"), up("b", ci.JobSuccess, ",success,"), up("c", ci.JobQueued, ",success,"),
		}}, "waits for a and c"},
		"pending, many needs": {whyFacts{job: db.ReadRunJobsRow{Status: "pending"}, up: []upstream{
			up("a", ci.JobRunning, ","), up("b", ci.JobRunning, ","), up("c", ci.JobQueued, ","), up("d", ci.JobQueued, ","), up("e", ci.JobQueued, ","),
		}}, "waits for a, b, c and 2 more"},
		"pending, all met":   {whyFacts{job: db.ReadRunJobsRow{Status: "pending"}}, "about to be queued"},
		"pending, cancelled": {whyFacts{job: db.ReadRunJobsRow{Status: "pending"}, run: db.ReadRunRow{Status: "cancelling"}}, "its run is being cancelled"},
		"queued, new":        {whyFacts{job: db.ReadRunJobsRow{Status: "queued"}}, "waits for the next placement pass"},
		"queued, reasons": {whyFacts{job: db.ReadRunJobsRow{Status: "queued"}, reasons: shapeReasons{list: []client.Reason{
			{Kind: "no_label_match", Text: "mac has no label linux"}, {Kind: "backoff", Text: "local backs off"}, {Kind: "cap", Text: "big is full"},
		}}}, "local backs off"},
		"queued, launch failed": {
			whyFacts{job: db.ReadRunJobsRow{Status: "queued", ProvisioningError: "exec: no such file"}},
			"the last agent for it did not start: exec: no such file",
		},
		"queued, bound": {
			whyFacts{job: db.ReadRunJobsRow{Status: "queued", BoundID: text("a9"), BoundState: text("booting"), BoundScaler: text("local")}},
			"agent a9 is starting for it by local",
		},
		"queued, its image is being pulled": {
			whyFacts{job: db.ReadRunJobsRow{
				Status: "queued", BoundID: text("a9"), BoundState: text("starting"), BoundScaler: text("box"), BoundDetail: text("pulling golang:1.26: 120 MB of 300 MB"),
			}},
			"agent a9 is starting for it by box: pulling golang:1.26: 120 MB of 300 MB",
		},
		"running":    {whyFacts{job: agent(ci.JobRunning)}, "runs on agent a1 (local on hydra)"},
		"recovering": {whyFacts{job: agent(ci.JobRecovering)}, "the link to agent a1 (local on hydra) is lost; it has until 01:01:01 UTC to come back"},
		"cancelling": {whyFacts{job: db.ReadRunJobsRow{Status: "cancelling", CancelReason: "cancelled by ada"}}, "is being cancelled by ada"},
		"held":       {whyFacts{job: db.ReadRunJobsRow{Status: "held"}}, "is held and waits for an approval"},
		"held, by nothing we know": {
			whyFacts{job: db.ReadRunJobsRow{Status: "held", BaseName: "t"}, holds: holds{turns: map[string]turn{"t": {max: 2}}}},
			"waits for its turn in the matrix, and goes on in a moment",
		},
		"waiting":              {whyFacts{job: db.ReadRunJobsRow{Status: "waiting"}}, "waits for its timer"},
		"success":              {whyFacts{job: db.ReadRunJobsRow{Status: "success", StartedAt: num(1000), FinishedAt: num(13_540)}}, "succeeded in 12.5s"},
		"failed, own sentence": {whyFacts{job: db.ReadRunJobsRow{Status: "failed", Error: "the checkout failed"}, steps: failedStep}, "the checkout failed"},
		"failed, by its step":  {whyFacts{job: db.ReadRunJobsRow{Status: "failed"}, steps: failedStep}, `step "go test" failed with exit code 3`},
		"failed, silently":     {whyFacts{job: db.ReadRunJobsRow{Status: "failed"}}, "failed"},
		"timed out":            {whyFacts{job: db.ReadRunJobsRow{Status: "timed_out_stale"}}, "timed out"},
		"unroutable":           {whyFacts{job: db.ReadRunJobsRow{Status: "unroutable", Error: "nothing has the label gpu"}}, "nothing has the label gpu"},
		"drift":                {whyFacts{job: db.ReadRunJobsRow{Status: "drift_dropped"}}, "drift dropped"},
		"cancelled":            {whyFacts{job: db.ReadRunJobsRow{Status: "cancelled", CancelReason: "enough"}}, "cancelled: enough"},
		"cancelled, a reason":  {whyFacts{job: db.ReadRunJobsRow{Status: "cancelled", CancelReason: "cancelled by ada"}, run: db.ReadRunRow{CancelledBy: "ada"}}, "cancelled by ada"},
		"cancelled, by whom":   {whyFacts{job: db.ReadRunJobsRow{Status: "cancelled"}, run: db.ReadRunRow{CancelledBy: "ada"}}, "cancelled by ada"},
		"skipped, by a need": {
			whyFacts{job: db.ReadRunJobsRow{Status: "skipped"}, up: []upstream{up("a", ci.JobSuccess, ",success,"), up("b", ci.JobFailed, ",success,")}},
			"skipped: b failed",
		},
		"skipped, by its if": {whyFacts{job: db.ReadRunJobsRow{Status: "skipped"}, up: []upstream{up("a", ci.JobSuccess, ",success,")}}, "skipped: its condition was false"},
	} {
		if got := whyOf(tc.f); got.Headline != tc.want {
			t.Errorf("%s: %q, want %q", name, got.Headline, tc.want)
		}
	}
	for _, s := range append([]ci.JobStatus{ci.JobPending, ci.JobQueued, ci.JobRunning, ci.JobRecovering, ci.JobCancelling, ci.JobHeld, ci.JobWaiting}, ci.TerminalJobStatuses...) {
		if w := whyOf(whyFacts{job: db.ReadRunJobsRow{Status: string(s)}}); w.Headline == "" || w.Reasons == nil {
			t.Errorf("%s has nothing to say: %+v", s, w)
		}
	}
}

// A headline is about this job: what belongs to other jobs is never it while anything else is known.
func TestHeadlineRanks(t *testing.T) {
	nobody := client.Reason{Kind: "no_offer", Text: "No scaler or agent offers gpu"}
	others := client.Reason{Kind: "other_jobs", Text: "1 single-use agent belongs to other jobs"}
	lacks := client.Reason{Kind: "no_label_match", Scaler: "local", Text: "local lacks label gpu"}
	gate := client.Reason{Kind: "gate", Scaler: "mac", Text: "mac takes only jobs that ask for macos"}
	full := client.Reason{Kind: "cap", Scaler: "local", Text: "local is full"}
	booting := client.Reason{Kind: "booting", Text: "agent a is on its way"}
	for name, tc := range map[string]struct {
		reasons []client.Reason
		want    client.Reason
	}{
		"nothing offers it, others run":    {[]client.Reason{nobody, lacks, others}, nobody},
		"nothing offers it, one is gated":  {[]client.Reason{nobody, gate, others}, nobody},
		"offered no more, one was booting": {[]client.Reason{nobody, booting}, nobody},
		"full, others run":                 {[]client.Reason{full, others}, full},
		"gated, others run":                {[]client.Reason{others, gate}, gate},
		"lacks it, others run":             {[]client.Reason{others, lacks}, lacks},
		"only others":                      {[]client.Reason{others}, others},
	} {
		if got := headlineOf(tc.reasons); got != tc.want.Text {
			t.Errorf("%s: %q, want %q", name, got, tc.want.Text)
		}
	}
}

// A failure that is allowed counts as success for those that need it (D6).
func TestNeedIsMet(t *testing.T) {
	for _, tc := range []struct {
		u    upstream
		want bool
	}{
		{upstream{status: ci.JobSuccess, runOn: ",success,"}, true},
		{upstream{status: ci.JobFailed, runOn: ",success,"}, false},
		{upstream{status: ci.JobFailed, allowed: true, runOn: ",success,"}, true},
		{upstream{status: ci.JobFailed, allowed: true, runOn: ",failed,"}, false},
		{upstream{status: ci.JobRunning, runOn: ",success,failed,"}, false},
	} {
		if got := tc.u.met(); got != tc.want {
			t.Errorf("%+v: %v", tc.u, got)
		}
	}
}

func TestScalerStates(t *testing.T) {
	const now = 1_000_000
	ready := db.ReadScalersRow{Ready: true, MaxAgents: 2, NodeName: text("hydra"), NodeHeartbeat: num(now - 1000)}
	with := func(f func(*db.ReadScalersRow)) db.ReadScalersRow { x := ready; f(&x); return x }
	for name, tc := range map[string]struct {
		x           db.ReadScalersRow
		u           db.ReadScalerUsageRow
		state, text string
	}{
		"ready":       {ready, db.ReadScalerUsageRow{Agents: 1}, "ready", ""},
		"full":        {ready, db.ReadScalerUsageRow{Agents: 2}, "full", "2 of 2 agents"},
		"no cpu left": {with(func(x *db.ReadScalersRow) { x.CapCpuMilli = 1500 }), db.ReadScalerUsageRow{CpuMilli: 1500}, "full", "1.5 of 1.5 CPUs"},
		"no memory":   {with(func(x *db.ReadScalersRow) { x.CapMemBytes = 1 << 30 }), db.ReadScalerUsageRow{MemBytes: 1 << 30}, "full", "1024 of 1024 MiB of memory"},
		"backing off": {with(func(x *db.ReadScalersRow) { x.UntilAt, x.Failures, x.LastError = num(now+1), num(1), text("boom") }), db.ReadScalerUsageRow{}, "backing off", "until 00:16:40 UTC after 1 failed launch: boom"},
		"back again":  {with(func(x *db.ReadScalersRow) { x.UntilAt = num(now) }), db.ReadScalerUsageRow{}, "ready", ""},
		"not ready":   {with(func(x *db.ReadScalersRow) { x.Ready, x.NotReady = false, "no such user" }), db.ReadScalerUsageRow{}, "not ready", "no such user"},
		"retiring":    {with(func(x *db.ReadScalersRow) { x.Retiring = true }), db.ReadScalerUsageRow{}, "retiring", "no longer in scalers.yaml; ends with its last agent"},
		"draining":    {with(func(x *db.ReadScalersRow) { x.NodeDraining = sql.NullBool{Bool: true, Valid: true} }), db.ReadScalerUsageRow{}, "draining", "hydra takes no new work"},
		"node lost":   {with(func(x *db.ReadScalersRow) { x.NodeHeartbeat = num(now - 120_000) }), db.ReadScalerUsageRow{}, "node lost", "nothing was heard from hydra"},
		"node slow":   {with(func(x *db.ReadScalersRow) { x.NodeHeartbeat = num(now - 119_000) }), db.ReadScalerUsageRow{}, "ready", ""},
	} {
		if state, text := scalerState(tc.x, tc.u, now); state != tc.state || text != tc.text {
			t.Errorf("%s: %q, %q", name, state, text)
		}
	}
}

func TestLevelsOfACircle(t *testing.T) {
	depth := levels(map[string][]edge{"a": {{id: "b"}}, "b": {{id: "a"}}}) // never stored, but must not hang
	if depth("a") > 2 {
		t.Errorf("depth %d", depth("a"))
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(position{5, "x"}.cursor())
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseCursor(s, newest)
		if err == nil && s != "" {
			if again, err := parseCursor(p.cursor(), newest); err != nil || again != p {
				t.Errorf("%q: %+v, then %+v (%v)", s, p, again, err)
			}
		}
		_, _ = parseLogPosition(s)
	})
}
