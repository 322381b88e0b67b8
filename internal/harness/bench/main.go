// Command bench measures the whole program from outside, row by row of the design's table of speed, each beside its goal and
// a yardstick measured in the same run: these machines are noisy, so a figure counts as a ratio. It asserts nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	What, Goal, Got string
	Met             *bool  // nil: no goal
	Yardstick       string // what was measured beside it
	Ratio           string
}

// bench is the state that rows share.
type bench struct {
	kici  string // the binary
	dir   string // scratch directory, on a real disk
	quick bool
	rows  []row
	note  func(format string, args ...any)
}

func main() {
	kici := flag.String("kici", "bin/kici", "binary to measure")
	only := flag.String("only", "", "comma-separated names of measurements")
	quick := flag.Bool("quick", false, "fewer repetitions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kici, *only, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kici, only string, quick bool) error {
	binary, err := filepath.Abs(kici)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kici-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{kici: binary, dir: dir, quick: quick, note: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }}
	insideNamespaces(b)
	for _, m := range []struct {
		name string
		run  func(context.Context, *bench) error
	}{
		{"size", measureSize},
		{"start", measureStart},
		{"idle", measureIdle},
		{"webhooks", measureWebhooks},
		{"latency", measureLatency},
		{"spawn", measureSpawn},
		{"container", measureContainer},
		{"throughput", measureThroughput},
		{"cluster", measureCluster},
		{"history", measureHistory},
		{"logs", measureLogs},
		{"connections", measureConnections},
		{"placement", measurePlacement},
		{"schedules", measureSchedules},
		{"events", measureEvents},
		{"crash", measureCrash},
	} {
		if only != "" && !strings.Contains(","+only+",", ","+m.name+",") {
			continue
		}
		b.note("measuring %s …", m.name)
		if err := b.measure(ctx, m.run); err != nil {
			b.rows = append(b.rows, row{What: m.name, Got: "not measured: " + err.Error()})
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.print()
	return ctx.Err()
}

// perRow bounds one measurement, so that the table comes within minutes whatever a row does.
const perRow = 75 * time.Second

// measure runs one row. Servers that it leaves behind are killed, which also ends what waits for them.
func (b *bench) measure(ctx context.Context, run func(context.Context, *bench) error) error {
	ctx, cancel := context.WithTimeout(ctx, perRow)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v", p)
			}
		}()
		done <- run(ctx, b)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select { // its servers and commands are being killed
	case err := <-done:
		return fmt.Errorf("not done within %s: %w", perRow, err)
	case <-time.After(5 * time.Second):
		return fmt.Errorf("not done within %s", perRow)
	}
}

func (b *bench) print() {
	w := tabwriter.NewWriter(os.Stdout, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, "what\tgoal\tmeasured\t\tyardstick of this run\tratio")
	for _, r := range b.rows {
		mark := ""
		if r.Met != nil {
			mark = "short"
			if *r.Met {
				mark = "met"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.What, r.Goal, r.Got, mark, r.Yardstick, r.Ratio)
	}
	_ = w.Flush()
}

// add records a row; met is compared with nothing else than what the caller says.
func (b *bench) add(r row, met bool) {
	r.Met = &met
	b.rows = append(b.rows, r)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func mib(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
