package check

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

const (
	pending = source.StatusPending
	running = source.StatusRunning
	success = source.StatusSuccess
	failure = source.StatusFailure
	errored = source.StatusError
)

var options = Options{BaseURL: "https://ci.test/kici"}

// lines shows posts as "context state description".
func lines(posts []Post) []string {
	out := []string{}
	for _, p := range posts {
		out = append(out, fmt.Sprintf("%s %s %s", p.Context, p.State, p.Description))
	}
	return out
}

func TestPlanStates(t *testing.T) {
	exit := int64(2)
	for name, c := range map[string]struct {
		run  Run
		job  Job
		want []string
	}{
		"waits":      {Run{Status: ci.RunPending}, Job{Status: ci.JobPending}, []string{"kici/ci pending queued", "kici/ci/job/test pending queued"}},
		"queued":     {Run{Status: ci.RunPending}, Job{Status: ci.JobQueued}, []string{"kici/ci pending queued", "kici/ci/job/test pending queued"}},
		"held":       {Run{Status: ci.RunHeld}, Job{Status: ci.JobHeld}, []string{"kici/ci pending held", "kici/ci/job/test pending held"}},
		"running":    {Run{Status: ci.RunRunning}, Job{Status: ci.JobRunning}, []string{"kici/ci running running", "kici/ci/job/test running running"}},
		"recovering": {Run{Status: ci.RunRunning}, Job{Status: ci.JobRecovering}, []string{"kici/ci running running", "kici/ci/job/test running running"}},
		"success": {
			Run{Status: ci.RunSuccess, CreatedAt: 1000, FinishedAt: 73_000},
			Job{Status: ci.JobSuccess, StartedAt: 1000, FinishedAt: 1350},
			[]string{"kici/ci success succeeded in 1 m 12 s", "kici/ci/job/test success succeeded in 350 ms"},
		},
		"skipped": {
			Run{Status: ci.RunSuccess, FinishedAt: 999},
			Job{Status: ci.JobSkipped, Error: "its condition was false"},
			[]string{"kici/ci success succeeded in 999 ms", "kici/ci/job/test success skipped: its condition was false"},
		},
		"kept from an earlier run": {
			Run{Status: ci.RunSuccess, FinishedAt: 7_500_000},
			Job{Status: ci.JobSuccess, FinishedAt: 9},
			[]string{"kici/ci success succeeded in 2 h 5 m", "kici/ci/job/test success succeeded"},
		},
		"failed step": {
			Run{Status: ci.RunFailed, Reason: `test: step "go test" failed with exit code 2`, FinishedAt: 5000},
			Job{Status: ci.JobFailed, StartedAt: 1000, FinishedAt: 4000, Step: &Step{3, "go test", &exit}},
			[]string{`kici/ci failure failed after 5 s: test: step "go test" failed with exit code 2`, "kici/ci/job/test failure failed after 3 s in step 3: go test (exit code 2)"},
		},
		"failed checkout": {
			Run{Status: ci.RunFailed, FinishedAt: 5000},
			Job{Status: ci.JobFailed, StartedAt: 1000, FinishedAt: 4000, Step: &Step{0, "checkout", nil}},
			[]string{"kici/ci failure failed after 5 s", "kici/ci/job/test failure failed after 3 s in step checkout"},
		},
		"allowed failure": {
			Run{Status: ci.RunSuccess, FinishedAt: 5000},
			Job{Status: ci.JobFailed, Allowed: true, StartedAt: 1, FinishedAt: 4001, Step: &Step{1, "lint", nil}},
			[]string{"kici/ci success succeeded in 5 s", "kici/ci/job/test success failed, allowed after 4 s in step 1: lint"},
		},
		"timed out": {
			Run{Status: ci.RunFailed, FinishedAt: 5000},
			Job{Status: ci.JobStale},
			[]string{"kici/ci failure failed after 5 s", "kici/ci/job/test failure failed: timed out"},
		},
		"lost": {
			Run{Status: ci.RunFailed, FinishedAt: 5000},
			Job{Status: ci.JobFailed, Lost: true, Error: "agent a did not come back"},
			[]string{"kici/ci error failed after 5 s", "kici/ci/job/test error failed: agent a did not come back"},
		},
		"unroutable": {
			Run{Status: ci.RunFailed, FinishedAt: 5000},
			Job{Status: ci.JobUnroutable, Error: "nothing has the label gpu"},
			[]string{"kici/ci error failed after 5 s", "kici/ci/job/test error failed before it started: nothing has the label gpu"},
		},
		"init failure": {
			Run{Status: ci.RunFailed, FinishedAt: 5000},
			Job{Status: ci.JobFailed, InitFailure: "dynamic_eval", Error: "runs-on: no such name"},
			[]string{"kici/ci error failed after 5 s", "kici/ci/job/test error failed before it started: runs-on: no such name"},
		},
		"cancelled": {
			Run{Status: ci.RunCancelled, Reason: "cancelled by ann", FinishedAt: 5000},
			Job{Status: ci.JobCancelled, Error: "cancelled by ann"},
			[]string{"kici/ci error cancelled after 5 s: by ann", "kici/ci/job/test error cancelled: by ann"},
		},
		"cancelled by a limit": {
			Run{Status: ci.RunCancelled, Reason: "workflow_timeout: 5 m", FinishedAt: 5000},
			Job{Status: ci.JobCancelled},
			[]string{"kici/ci error cancelled after 5 s: workflow_timeout: 5 m", "kici/ci/job/test error cancelled"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.run.ID, c.run.Workflow, c.run.SHA, c.job.ID, c.job.Name = "r1", "ci", "abc", "j1", "test"
			got := Plan(c.run, []Job{c.job}, nil, options)
			if d := cmp.Diff(c.want, lines(got)); d != "" {
				t.Error(d)
			}
			if got[0].URL != "https://ci.test/kici/runs/r1" || got[1].URL != "https://ci.test/kici/runs/r1/jobs/j1" || got[1].SHA != "abc" || got[1].JobID != "j1" {
				t.Errorf("wrong addresses: %+v", got)
			}
		})
	}
}

func TestPlanUnresolved(t *testing.T) {
	got := Plan(Run{Workflow: unresolvedWorkflow, Status: ci.RunFailed, InitFailure: "lock_resolution", Reason: "ci.yaml:3:1: no such key\nci.yaml:4:1: two"}, nil, nil, options)
	want := []string{"kici/workflows failure failed: ci.yaml:3:1: no such key ci.yaml:4:1: two"}
	if d := cmp.Diff(want, lines(got)); d != "" {
		t.Error(d)
	}
}

func TestPlanPosted(t *testing.T) {
	run := Run{Workflow: "ci", Status: ci.RunRunning}
	jobs := []Job{{Name: "a", Status: ci.JobRunning}, {Name: "b", Status: ci.JobQueued}}
	for name, c := range map[string]struct {
		posted map[string]Posted
		show   string
		want   []string
	}{
		"nothing yet": {nil, ShowJobs, []string{"kici/ci running running", "kici/ci/job/a running running", "kici/ci/job/b pending queued"}},
		"equal ones are not repeated": {map[string]Posted{
			"kici/ci": {State: running, Description: "running"}, "kici/ci/job/a": {State: pending, Description: "queued"}, "kici/ci/job/b": {State: pending, Description: "queued"},
		}, "", []string{"kici/ci/job/a running running"}},
		"given up": {map[string]Posted{
			"kici/ci": {Wanted: running, GaveUp: true}, "kici/ci/job/a": {Wanted: pending, GaveUp: true}, "kici/ci/job/b": {Wanted: pending, GaveUp: true},
		}, "", []string{"kici/ci/job/a running running"}},
		"workflows": {nil, ShowWorkflows, []string{"kici/ci running running"}},
		"off":       {nil, ShowOff, []string{}},
	} {
		if d := cmp.Diff(c.want, lines(Plan(run, jobs, c.posted, Options{Show: c.show}))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestPlanManyJobs(t *testing.T) {
	jobs := make([]Job, 2000)
	for i := range jobs {
		jobs[i] = Job{Name: fmt.Sprint("j", i), Status: ci.JobSuccess}
	}
	run := Run{Workflow: "ci", Status: ci.RunRunning}
	const note = "(2000 jobs; those that fail have a line of their own, at most 50)"
	jobs[7].Status = ci.JobFailed
	jobs[8].Status, jobs[8].Allowed = ci.JobFailed, true
	if d := cmp.Diff([]string{"kici/ci running running " + note, "kici/ci/job/j7 failure failed"}, lines(Plan(run, jobs, nil, options))); d != "" {
		t.Error(d)
	}
	for i := range jobs {
		jobs[i].Status, jobs[i].Allowed = ci.JobFailed, false
	}
	if got := Plan(run, jobs, nil, options); len(got) != 51 {
		t.Errorf("%d posts for 2000 failed jobs, want 51", len(got))
	}
	// One that has a line keeps it, even beyond the bound's first fifty.
	posted := map[string]Posted{"kici/ci/job/j1999": {State: pending}}
	got := Plan(run, jobs, posted, options)
	if last := got[len(got)-1]; len(got) != 51 || last.Context != "kici/ci/job/j1999" {
		t.Errorf("%d posts, the last is %s", len(got), last.Context)
	}
}

func TestContexts(t *testing.T) {
	long := strings.Repeat("é", 200)
	seen := map[string]string{}
	for _, c := range [][2]string{
		{"ci", ""},
		{"ci", "test"},
		{"ci", "test (1.26)"},
		{"ci", "test (1.27)"},
		{long, "a"},
		{long, "b"},
		{long, ""},
		{long + "x", ""},
		{"ci", "a\nb"},
		{"ci", "a b"},
		{"ci", "a\x00b"},
		{"ci", " a b"},
		{"ci/job/test", ""},
		{"ci/job/test", "x"},
		{"ci", "test/job/x"},
		{"\xff", ""},
		{"", ""},
	} {
		name := workflowContext(c[0])
		if c[1] != "" {
			name = jobContext(c[0], c[1])
		}
		if len(name) > source.MaxStatusContext || !utf8.ValidString(name) || strings.ContainsAny(name, "\n\x00") {
			t.Errorf("bad name %q", name)
		}
		if had, ok := seen[name]; ok {
			t.Errorf("%q for %q and %q", name, had, c)
		}
		seen[name] = strings.Join(c[:], "|")
	}
	if got := jobContext("ci", "test (1.26)"); got != "kici/ci/job/test (1.26)" {
		t.Error(got)
	}
}

func FuzzBounded(f *testing.F) {
	f.Add("kici/ci")
	f.Add(strings.Repeat("\U0001F600", 99))
	f.Fuzz(func(t *testing.T, text string) {
		name := bounded(text, false)
		if len(name) > source.MaxStatusContext || !utf8.ValidString(name) {
			t.Errorf("bad name %q", name)
		}
		if d := clip(text, maxDescription); len(d) > maxDescription || !utf8.ValidString(d) || strings.Contains(d, "\n") {
			t.Errorf("bad description %q", d)
		}
	})
}
