// Package doctorcmd is "kici doctor": what is wrong with this installation, seen from outside. It asks the machine and the server;
// checks that need the server's own rooms (data directory, database, scalers.yaml) are injected. And it is "kici diagnose", which
// lets the server examine itself.
package doctorcmd

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/diagnose"
)

// Host says where a server's things are on this machine.
type Host struct {
	DataDir, DatabaseURL, ScalerConfig, ScalerDir string
	Environ                                       []string
}

// HostChecks are the checks of a machine that need the server's rooms.
type HostChecks func(Host) []diagnose.Check

// Doctor returns "kici doctor".
func Doctor(c *console.Console, more HostChecks) *cobra.Command {
	h := Host{Environ: os.Environ()}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what is wrong with this installation, and how to cure it", Args: cobra.NoArgs,
		Long: `Examine the machine, the files and the server of this installation, with or without a running server: one line for each
check, and the cure of what is wrong. All checks run at once and have 5 seconds each; nothing is changed.

The exit code is 0 when everything is well, 1 when something should be looked at, 2 when something does not work.`,
		Example: `  kici doctor
  kici doctor --data-dir /srv/kici
  kici doctor --database-url postgres://kici@db/kici -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h.DatabaseURL = or(h.DatabaseURL, c.Getenv("KICI_DATABASE_URL"))
			h.ScalerConfig = or(h.ScalerConfig, c.Getenv("KICI_SCALER_CONFIG_PATH"))
			h.ScalerDir = or(h.ScalerDir, c.Getenv("KICI_SCALER_CONFIG_DIR"))
			h.DataDir = or(h.DataDir, c.Getenv("KICI_DATA_DIR"))
			checks := append([]diagnose.Check{{Name: "program", Ask: program(c)}}, machine()...)
			if more != nil {
				checks = append(checks, more(h)...)
			}
			checks = append(checks, server(c)...)
			return finish(c, diagnose.Run(cmd.Context(), checks, diagnose.Timeout))
		},
	}
	f := cmd.Flags()
	f.StringVar(&h.DataDir, "data-dir", "", "the server's data `directory` (KICI_DATA_DIR; default where a server of this user has it)")
	f.StringVar(&h.DatabaseURL, "database-url", "", "postgres://… when the server keeps its data in PostgreSQL (KICI_DATABASE_URL)")
	f.StringVar(&h.ScalerConfig, "scaler-config", "", "the server's scalers.yaml, when it is not in the data directory")
	f.StringVar(&h.ScalerDir, "scaler-config-dir", "", "folder of further scalers.yaml fragments")
	return cmd
}

// Diagnose returns "kici admin diagnose" (OBS-7).
func Diagnose(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "diagnose", Short: "Let the server examine itself", Args: cobra.NoArgs,
		Long: `Let the server examine itself: database, disk, agents, scalers, leader, connections and configuration.
The exit code is 0 when it is healthy, 1 when it is degraded, 2 when it is unhealthy or cannot be asked. "kici doctor" also
looks at this machine.`,
		Example: "  kici admin diagnose\n  kici admin diagnose --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return &console.ExitError{Code: console.ExitNotClean, Err: err}
			}
			d, err := cl.Diagnose(cmd.Context())
			if err != nil {
				return &console.ExitError{Code: console.ExitNotClean, Err: err}
			}
			r := diagnose.Report{Status: diagnose.Verdict(d.Status), Checks: make([]diagnose.Result, len(d.Checks))}
			for i, x := range d.Checks {
				r.Checks[i] = diagnose.Result{
					Name: x.Name, Status: diagnose.Status(x.Status), Message: x.Message, Cure: x.Cure, Details: x.Details, DurationMs: x.DurationMs,
				}
			}
			return finish(c, r)
		},
	}
}

// finish prints a report; the verdict is the exit code (OBS-7).
func finish(c *console.Console, r diagnose.Report) error {
	if err := c.Print(r, func() error { return table(c, r) }); err != nil {
		return err
	}
	switch r.Status {
	case diagnose.Healthy:
		return nil
	case diagnose.Degraded:
		return console.Exit(console.ExitFailed)
	}
	return console.Exit(console.ExitNotClean)
}

var classes = map[diagnose.Status]string{diagnose.Pass: "success", diagnose.Warn: "held", diagnose.Fail: "failed", diagnose.Skip: "skipped"}

func table(c *console.Console, r diagnose.Report) error {
	width := 0
	for _, x := range r.Checks {
		width = max(width, len(x.Name))
	}
	counts := map[diagnose.Status]int64{}
	for _, x := range r.Checks {
		counts[x.Status]++
		word := fmt.Sprintf("%-4s", x.Status)
		if _, err := fmt.Fprintf(c.Out, "%s  %-*s  %s\n", c.Paint(word, classes[x.Status]), width, x.Name, console.CleanLine(x.Message)); err != nil {
			return err
		}
		if x.Cure != "" && x.Status != diagnose.Pass {
			fmt.Fprintf(c.Out, "      %-*s  %s\n", width, "", c.Dim("→ "+console.CleanLine(x.Cure)))
		}
	}
	c.Notice("%s: %d passed, %d to look at, %d failed, %d not asked", r.Status, counts[diagnose.Pass], counts[diagnose.Warn], counts[diagnose.Fail], counts[diagnose.Skip])
	return nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// asker makes a check of a function that needs no more than the context.
func asker(name string, f func(context.Context) diagnose.Finding) diagnose.Check {
	return diagnose.Check{Name: name, Ask: f}
}
