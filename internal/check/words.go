package check

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

// maxDescription bounds a description in bytes; adapters cut it to what their forge takes.
const maxDescription = 500

// unresolvedContext is the line of a run whose workflows could not be read (LOCK-4): which they are is not known.
const unresolvedContext = "kici/workflows"

// unresolvedWorkflow is the name of such a run (run.UnresolvedWorkflow).
const unresolvedWorkflow = "(unresolved workflow)"

// workflowContext names a workflow's line.
func workflowContext(workflow string) string {
	if workflow == unresolvedWorkflow {
		return unresolvedContext
	}
	return bounded("kici/"+workflow, strings.Contains(workflow, "/job/")) // else it could be another workflow's job
}

// jobContext names a job's line. The names of a run's jobs are distinct, a matrix child's too.
func jobContext(workflow, job string) string {
	return bounded("kici/"+workflow+"/job/"+job, strings.Contains(workflow, "/job/"))
}

// bounded makes a name of text that every forge takes: printable and at most source.MaxStatusContext bytes. What had to be changed, or
// is ambiguous, ends in a digest of the whole, so that names stay distinct.
func bounded(text string, ambiguous bool) string {
	name := printable(text)
	if name == text && len(name) <= source.MaxStatusContext && !ambiguous {
		return name
	}
	sum := sha256.Sum256([]byte(text))
	suffix := " " + hex.EncodeToString(sum[:6])
	return cut(name, source.MaxStatusContext-len(suffix)) + suffix
}

// printable replaces what a forge may refuse or drop: control characters, broken UTF-8, and space around the name.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(text)
}

// cut returns the longest beginning of text of at most n bytes that ends between characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// clip makes one bounded line of a text of many.
func clip(text string, n int) string {
	text = strings.Join(strings.Fields(printable(text)), " ")
	if len(text) <= n {
		return text
	}
	return cut(text, n-len("…")) + "…"
}

// runWords is what a run's own line says. It changes with the state only, so that a run posts few statuses.
func runWords(r Run, jobs []Job) (source.StatusState, string) {
	took := duration(r.FinishedAt - r.CreatedAt)
	switch r.Status {
	case ci.RunSuccess:
		return source.StatusSuccess, "succeeded in " + took
	case ci.RunCancelled:
		return source.StatusError, because("cancelled after "+took, strings.TrimPrefix(r.Reason, "cancelled"))
	case ci.RunFailed:
		if len(jobs) == 0 {
			return source.StatusFailure, because("failed", r.Reason)
		}
		return failedRun(jobs), because("failed after "+took, r.Reason)
	case ci.RunRunning, ci.RunCancelling:
		return source.StatusRunning, "running"
	case ci.RunHeld:
		return source.StatusPending, "held"
	case ci.RunPending:
	}
	return source.StatusPending, "queued"
}

// failedRun tells a run whose workflow is at fault from one that kici or its machines could not carry out.
func failedRun(jobs []Job) source.StatusState {
	state := source.StatusError
	for _, j := range jobs {
		if s, _ := jobWords(j); s == source.StatusFailure {
			state = s
		}
	}
	return state
}

func manyWords(jobs int) string {
	return fmt.Sprintf(" (%d jobs; those that fail have a line of their own, at most %d)", jobs, maxJobContexts)
}

// jobWords is what a job's line says.
func jobWords(j Job) (source.StatusState, string) {
	switch j.Status {
	case ci.JobSuccess:
		if j.StartedAt == 0 {
			return source.StatusSuccess, "succeeded"
		}
		return source.StatusSuccess, "succeeded in " + duration(j.FinishedAt-j.StartedAt)
	case ci.JobSkipped:
		return source.StatusSuccess, because("skipped", j.Error)
	case ci.JobFailed, ci.JobStale, ci.JobUnroutable, ci.JobDrift:
		state, text := failedJob(j)
		if j.Allowed {
			return source.StatusSuccess, strings.Replace(text, "failed", "failed, allowed", 1)
		}
		return state, text
	case ci.JobCancelled:
		return source.StatusError, because("cancelled", strings.TrimPrefix(j.Error, "cancelled"))
	case ci.JobRunning, ci.JobRecovering, ci.JobCancelling:
		return source.StatusRunning, "running"
	case ci.JobHeld, ci.JobWaiting:
		return source.StatusPending, "held"
	case ci.JobPending, ci.JobQueued:
	}
	return source.StatusPending, "queued"
}

func failedJob(j Job) (source.StatusState, string) {
	switch {
	case j.InitFailure != "" || j.Status == ci.JobUnroutable || j.Status == ci.JobDrift:
		return source.StatusError, because("failed before it started", j.Error)
	case j.Lost:
		return source.StatusError, because("failed", j.Error)
	case j.Status == ci.JobStale:
		return source.StatusFailure, because("failed: timed out", j.Error)
	}
	after := ""
	if j.StartedAt > 0 {
		after = " after " + duration(j.FinishedAt-j.StartedAt)
	}
	if j.Step == nil {
		return source.StatusFailure, because("failed"+after, j.Error)
	}
	text := fmt.Sprintf("failed%s in step %d: %s", after, j.Step.Index, j.Step.Name)
	if j.Step.Index == 0 {
		text = fmt.Sprintf("failed%s in step %s", after, j.Step.Name)
	}
	if j.Step.Exit != nil {
		text += fmt.Sprintf(" (exit code %d)", *j.Step.Exit)
	}
	return source.StatusFailure, text
}

func because(what, why string) string {
	if why = strings.Trim(why, " ;:"); why == "" {
		return what
	}
	return what + ": " + why
}

// duration is a time in milliseconds for people: 350 ms, 12 s, 1 m 12 s, 2 h 5 m.
func duration(ms int64) string {
	s := (ms + 500) / 1000
	switch {
	case ms < 1000:
		return fmt.Sprintf("%d ms", max(ms, 0))
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d m %d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d m", s/3600, s%3600/60)
}
