// Package diagnose asks many questions at once and each for a bounded time (OBS-5). It knows no question itself: "kici doctor"
// asks about an installation from outside, the server's diagnose route about itself.
package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Timeout is how long one check may take (OBS-5).
const Timeout = 5 * time.Second

// Status of a check. The zero value is invalid.
type Status string

// The statuses of OBS-5, and Skip for what cannot be asked here; it counts for nothing.
const (
	Pass Status = "pass"
	Warn Status = "warn"
	Fail Status = "fail"
	Skip Status = "skip"
)

// Finding is what a check found: one line for people and, unless it passed, what to do.
type Finding struct {
	Status  Status
	Message string
	Cure    string
	Details map[string]any
}

// Passed is a finding that all is well.
func Passed(format string, args ...any) Finding {
	return Finding{Status: Pass, Message: fmt.Sprintf(format, args...)}
}

// Warned is a finding that something should be looked at; the cure says how.
func Warned(cure, format string, args ...any) Finding {
	return Finding{Status: Warn, Cure: cure, Message: fmt.Sprintf(format, args...)}
}

// Failed is a finding that something does not work; the cure says how it will.
func Failed(cure, format string, args ...any) Finding {
	return Finding{Status: Fail, Cure: cure, Message: fmt.Sprintf(format, args...)}
}

// Skipped is a finding that there was nothing to ask, and why.
func Skipped(format string, args ...any) Finding {
	return Finding{Status: Skip, Message: fmt.Sprintf(format, args...)}
}

// Check is one question. With Rows it is one about several things, and has a result for each of them.
type Check struct {
	Name string
	Ask  func(context.Context) Finding
	Rows func(context.Context) []Row // in the place of Ask
}

// Row is one of several things that a check has found.
type Row struct {
	Name string
	Finding
}

// Result is a check and what it found.
type Result struct {
	Name       string         `json:"name"`
	Status     Status         `json:"status"`
	Message    string         `json:"message"`
	Cure       string         `json:"cure,omitempty"`
	Details    map[string]any `json:"details,omitempty"`
	DurationMs int64          `json:"durationMs"`
}

// Verdict over all checks.
type Verdict string

// The verdicts of OBS-5.
const (
	Healthy   Verdict = "healthy"
	Degraded  Verdict = "degraded"
	Unhealthy Verdict = "unhealthy"
)

// Report is every result in the order of the checks, and the verdict: any failure is unhealthy, any warning degraded.
type Report struct {
	Status Verdict  `json:"status"`
	Checks []Result `json:"checks"`
}

// Run asks everything side by side. A check that does not answer in time keeps its name and fails; it may go on behind.
func Run(ctx context.Context, checks []Check, timeout time.Duration) Report {
	results := make([][]Result, len(checks))
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() { results[i] = ask(ctx, c, timeout) })
	}
	all.Wait()
	r := Report{Status: Healthy, Checks: append([]Result{}, slices.Concat(results...)...)}
	for _, c := range r.Checks {
		switch {
		case c.Status == Fail:
			r.Status = Unhealthy
		case c.Status == Warn && r.Status == Healthy:
			r.Status = Degraded
		}
	}
	return r
}

func ask(ctx context.Context, c Check, timeout time.Duration) []Result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := make(chan []Row, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				answer <- []Row{{c.Name, Failed("report this as a bug", "the check itself broke: %v", p)}}
			}
		}()
		if c.Rows != nil {
			answer <- c.Rows(ctx)
			return
		}
		answer <- []Row{{c.Name, c.Ask(ctx)}}
	}()
	var rows []Row
	select {
	case rows = <-answer:
	case <-ctx.Done():
		rows = []Row{{c.Name, Failed("look why it takes so long: load, disk, network", "no answer within %s", timeout)}}
	}
	took := time.Since(began).Milliseconds()
	out := make([]Result, len(rows))
	for i, f := range rows {
		out[i] = Result{Name: f.Name, Status: cmp.Or(f.Status, Fail), Message: f.Message, Cure: f.Cure, Details: f.Details, DurationMs: took}
	}
	return out
}
