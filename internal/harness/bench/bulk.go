package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

func measureLogs(ctx context.Context, b *bench) error {
	s, err := b.start(ctx, filepath.Join(b.dir, "logs"))
	if err != nil {
		return err
	}
	defer s.stop()
	const lines = 100_000
	script := fmt.Sprintf(`awk 'BEGIN{for(i=1;i<=%d;i++)printf "line %%d %%0180d\n",i,0}'`, lines)
	o, err := b.repository(ctx, s, "spawn", script)
	if err != nil {
		return err
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	before, _, err := rss(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := o.push(ctx); err != nil {
		return err
	}
	var took time.Duration
	var peak, size int64
	var runID, jobID string
	for ; ; time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return errors.New("the job did not end")
		}
		if now, _, err := rss(s.cmd.Process.Pid); err == nil {
			peak = max(peak, now)
		}
		if runID == "" {
			list, err := c.Deliveries(ctx, deliveriesOf("repo-spawn"))
			if err != nil {
				return err
			}
			if len(list.Deliveries) > 0 {
				runID = list.Deliveries[0].RunID
			}
			continue
		}
		d, err := c.Run(ctx, runID)
		if err != nil {
			return err
		}
		if d.FinishedAt == nil {
			continue
		}
		if d.Status != "success" {
			return fmt.Errorf("the run ended %s: %s", d.Status, d.FailureReason)
		}
		jobID, size = d.Jobs[0].ID, d.Jobs[0].LogBytes
		took = d.FinishedAt.Sub(d.StartedAt.Time)
		break
	}
	stored, err := countLines(ctx, s, runID, jobID)
	if err != nil {
		return err
	}
	rate := float64(size) / took.Seconds() / 1e6
	y, err := writeRate(b.dir)
	if err != nil {
		return err
	}
	b.add(row{
		What: "100,000 log lines in a burst, whole job", Goal: "all stored, ≥ 50 MB/s, RSS +≤ 20 MB",
		Got:       fmt.Sprintf("%d stored, %s in %s = %.0f MB/s, RSS +%s", stored, mib(size), ms(took), rate, mib(peak-before)),
		Yardstick: fmt.Sprintf("write 64 MB + fsync %.0f MB/s", y), Ratio: fmt.Sprintf("%.2f×", rate/y),
	}, stored == lines && rate >= 50 && peak-before <= 20e6)
	return nil
}

// countLines reads the log back and checks that every line is there once and in order.
func countLines(ctx context.Context, s *server, run, job string) (int, error) {
	c, err := s.client()
	if err != nil {
		return 0, err
	}
	n, cursor := 0, ""
	for {
		page, err := c.StepLog(ctx, run, job, 1, cursor, 2000)
		if err != nil {
			return 0, err
		}
		for _, l := range page.Lines {
			if l.Level != "stdout" {
				continue
			}
			n++
			if want := "line " + strconv.Itoa(n) + " "; len(l.Msg) < len(want) || l.Msg[:len(want)] != want {
				return 0, fmt.Errorf("line %d is %.40q", n, l.Msg)
			}
		}
		if page.Complete || len(page.Lines) == 0 {
			return n, nil
		}
		cursor = page.NextCursor
	}
}

func measureConnections(ctx context.Context, b *bench) error {
	s, err := b.start(ctx, filepath.Join(b.dir, "connections"))
	if err != nil {
		return err
	}
	defer s.stop()
	warm, err := gather(ctx, s, 64, []string{"idle"}, nil)
	if err != nil {
		return err
	}
	warm.leave()
	time.Sleep(2 * time.Second)
	before, _, err := rss(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	n := 4000
	if b.quick {
		n = 1000
	}
	agents, err := gather(ctx, s, n, []string{"idle"}, nil)
	if err != nil {
		return err
	}
	time.Sleep(4 * time.Second)
	after, _, err := rss(s.cmd.Process.Pid)
	failed := agents.failed.Load()
	agents.leave()
	if err != nil {
		return err
	}
	each := float64(after-before) / float64(n) / 1024
	b.add(row{
		What: fmt.Sprintf("memory per idle agent connection, %d agents", n), Goal: "≤ 60 KB", Got: fmt.Sprintf("%.1f KB (%d lost)", each, failed),
	}, each <= 60 && failed == 0)
	return nil
}

var benchLine = regexp.MustCompile(`(?m)^(Benchmark\S+)\s+\d+\s+([0-9.]+) ns/op`)

// measurePlacement runs the Go benchmarks of the pure decision and of the whole tick with the store.
func measurePlacement(ctx context.Context, b *bench) error {
	for _, m := range []struct {
		what, pkg, pattern string
		goal               time.Duration
	}{
		{"placement of 10,000 jobs, 50 shapes, 1,000 agents, 100 scalers: decide", "./internal/placement", "BenchmarkDecide/jobs=10000$", 10 * time.Millisecond},
		{"the same: whole tick with the store", "./internal/dispatch", "BenchmarkTick/(steady|moving)", 50 * time.Millisecond},
	} {
		out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", m.pattern, "-benchtime", "2s", m.pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %s", m.pkg, out)
		}
		found := benchLine.FindAllStringSubmatch(string(out), -1)
		if len(found) == 0 {
			b.rows = append(b.rows, row{What: m.what, Got: "not measured: no " + m.pattern + " in " + m.pkg})
		}
		for _, f := range found {
			ns, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return err
			}
			d := time.Duration(ns)
			b.add(row{What: m.what, Goal: "≤ " + ms(m.goal), Got: ms(d), Yardstick: f[1]}, d <= m.goal)
		}
	}
	return nil
}
