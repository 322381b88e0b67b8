// Package localcmd is "kici run local": a workflow of this checkout on this machine, without a server.
package localcmd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/agent"
	"github.com/kici-go/kici/internal/agent/local"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/watch"
)

// flags are what the command was asked for.
type flags struct {
	dir, event, secretFile, inputsFile string
	jobs, inputs, env, matrix          []string
	atOnce                             int
	grace                              time.Duration
	dryRun, dirty, inPlace, verbose    bool
}

// New returns the command.
func New(c *console.Console) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "local [WORKFLOW]", Short: "Run a workflow of this checkout on this machine, without a server", Args: cobra.MaximumNArgs(1),
		Long: `Run a workflow of this checkout on this machine, without a server. Jobs, matrices, needs, conditions, outputs and steps work
as on an agent, because the same code runs them; runs-on chooses nothing, since there is only this machine.

Each job works in a clean checkout of HEAD in a temporary directory. With --dirty it gets what is in the working tree over
that (ignored files stay away); with --in-place jobs work in the working tree itself and can change it. Steps run as you and can
do what you can do; of your environment they get what programs need to work (PATH, HOME, …) and what --env names.

An interrupt cancels the run: steps are asked to end and have their grace; a second one kills them at once.
The exit code is 0 when the run succeeded, 1 when it failed, 2 when it was cancelled and 64 for wrong usage.`,
		Example: `  kici run local
  kici run local ci --job test --matrix go=1.26
  kici run local deploy -i target=staging --secret-file .secrets --dirty
  kici run local ci --event pull_request --dry-run`,
		ValidArgsFunction: complete(&f),
		RunE:              func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), c, f, args) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.dir, "dir", "C", "", "work in this checkout instead of the one around the current directory")
	fl.StringArrayVar(&f.jobs, "job", nil, "only this `job` and what it needs; may be repeated")
	fl.StringArrayVar(&f.matrix, "matrix", nil, "only children with this `key=value` in their matrix; may be repeated")
	fl.StringVar(&f.event, "event", "", "pretend this event: push, pull_request or workflow_dispatch (default: the first of them that starts the workflow)")
	fl.StringArrayVarP(&f.inputs, "input", "i", nil, "an input of workflow_dispatch as `name=value`; may be repeated")
	fl.StringVar(&f.inputsFile, "inputs-file", "", "a file with a JSON object of inputs")
	fl.StringVar(&f.secretFile, "secret-file", "", "a file of name=value lines: the secrets; they are masked in the output")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "a variable for every step as `name=value`, or name to pass on your own; may be repeated")
	fl.IntVarP(&f.atOnce, "jobs", "j", runtime.NumCPU(), "at most this many jobs at once")
	fl.DurationVar(&f.grace, "grace", 0, "time that a cancelled step has to end (default: the job's own)")
	fl.BoolVar(&f.dirty, "dirty", false, "use the working tree as it is, not the commit")
	fl.BoolVar(&f.inPlace, "in-place", false, "work in the working tree itself")
	fl.BoolVar(&f.dryRun, "dry-run", false, "show which jobs would run, and in which order, and run nothing")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "print every line of the logs, also on a terminal")
	cmd.MarkFlagsMutuallyExclusive("dirty", "in-place")
	_ = cmd.RegisterFlagCompletionFunc("event", cobra.FixedCompletions(eventNames, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// Guard is the hidden command that clears away after a "run local" that was killed.
func Guard() *cobra.Command {
	return &cobra.Command{
		Use:     "guard DIR",
		Long:    "Wait until standard input ends, then end what a local run left in DIR and remove it. \"kici run local\" starts it; people need not.",
		Example: "  kici run guard DIR < /dev/null", Short: "Clear away what a killed local run leaves", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			signal.Ignore(os.Interrupt, syscall.SIGTERM)
			return local.Guard(args[0], cmd.InOrStdin(), slog.New(slog.DiscardHandler))
		},
	}
}

func run(ctx context.Context, c *console.Console, f flags, args []string) error {
	format, err := c.Format()
	if err != nil {
		return err
	}
	if f.atOnce < 1 {
		return console.Usage("--jobs is at least 1, not %d", f.atOnce)
	}
	p, err := prepare(ctx, c, f, args)
	if err != nil {
		return err
	}
	if f.dryRun {
		return p.show(c)
	}
	if err := p.tree.Check(p.mode); err != nil {
		return err
	}
	for _, n := range p.notices {
		c.Notice("note: %s", n)
	}
	log := slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var guard []string
	if len(c.Self) > 0 {
		guard = append(c.Self[:len(c.Self):len(c.Self)], "run", "guard")
	}
	place, err := local.OpenPlace(guard, log)
	if err != nil {
		return err
	}
	defer place.Close()
	out := newScreen(c, format, f.verbose)
	r := local.New(local.Options{
		Tree: p.tree, Mode: p.mode, Plan: p.plan, Facts: p.facts, Secrets: p.secrets, Env: p.env, Jobs: f.atOnce, Grace: f.grace,
		Version: cmp.Or(c.Version, "dev"), Environ: agent.StepEnviron(os.Environ()), Work: place.Work, Now: time.Now, Log: log, Line: out.line,
		Event: out.emitted, Executable: executable(c),
	})
	defer cancelBySignal(ctx, r, out)()
	d, err := out.follow(ctx, r, p)
	if err != nil {
		return err
	}
	if format != "table" {
		if err := c.Print(d, nil); err != nil {
			return err
		}
	}
	switch ci.RunStatus(d.Status) {
	case ci.RunSuccess:
		return nil
	case ci.RunCancelled:
		return console.Exit(console.ExitNotClean)
	}
	return console.Exit(console.ExitFailed)
}

// executable is what steps find as kici.
func executable(c *console.Console) string {
	if len(c.Self) == 0 {
		return ""
	}
	return c.Self[0]
}

// cancelBySignal cancels the run at the first signal, or when ctx ends, and kills it at the second one.
func cancelBySignal(ctx context.Context, r *local.Runner, out *screen) (stop func()) {
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ended := ctx.Done()
	go func() {
		for force := false; ; force = true {
			select {
			case <-signals:
			case <-ended:
				ended = nil
			case <-done:
				return
			}
			if !force {
				out.say("cancelling; interrupt again to kill at once")
			}
			r.Cancel(force)
		}
	}()
	return func() { signal.Stop(signals); close(done) }
}

// follow draws the run until it has ended. It does not end before that, whatever becomes of ctx: nothing may be left running.
func (s *screen) follow(ctx context.Context, r *local.Runner, p *prepared) (client.RunDetail, error) {
	d, err := watch.Run(context.WithoutCancel(ctx), feed{r, p}, "", s.to, s.options)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	s.close(d)
	return d, err
}

// feed gives a local run to the drawer of remote ones.
type feed struct {
	run *local.Runner
	p   *prepared
}

func (f feed) FollowRun(_ context.Context, _ string, show func(client.RunDetail) error) error {
	var failed error
	f.run.Run(func(s local.State) { failed = errors.Join(failed, show(f.p.detail(s))) })
	return failed
}
