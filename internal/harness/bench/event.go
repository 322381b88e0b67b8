package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

var rateLine = regexp.MustCompile(`(?m)^(Benchmark\S+)\s+\d+\s.*?([0-9.e+]+) events/s`)

// measureEvents runs the Go benchmarks of the router: what its part of the time of every job is, and how many workflows events can
// start. Their store waits for the disk, as a server's does.
func measureEvents(ctx context.Context, b *bench) error {
	for _, m := range []struct {
		what, pattern, goal string
		least               float64
	}{
		{"events/s that nobody waits for (two of every job)", "BenchmarkRouteUnmatched$", "≥ 10,000/s", 10_000},
		{"events/s that filters turn away", "BenchmarkRouteFiltered$", "-", 0},
		{"events/s that start a run each", "BenchmarkRouteMatched$", "-", 0},
	} {
		out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", m.pattern, "-benchtime", "4000x", "./internal/event").CombinedOutput()
		if err != nil {
			return fmt.Errorf("internal/event: %s", out)
		}
		found := rateLine.FindStringSubmatch(string(out))
		if found == nil {
			b.rows = append(b.rows, row{What: m.what, Got: "not measured: no " + m.pattern + " in internal/event"})
			continue
		}
		rate, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return err
		}
		r := row{What: m.what, Goal: m.goal, Got: fmt.Sprintf("%.0f/s", rate), Yardstick: found[1]}
		if m.least == 0 {
			b.rows = append(b.rows, r)
			continue
		}
		b.add(r, rate >= m.least)
	}
	return nil
}
