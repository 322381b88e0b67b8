package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/watch"
	"github.com/kici-go/kici/internal/obs"
)

// demoOptions are the flags of `kici demo`.
type demoOptions struct {
	dataDir string
	port    int
	exit    bool
}

const (
	demoSource   = "shop"
	demoPatience = 30 * time.Second // from the push to the run
)

// DemoCommand is `kici demo`: a server, an example repository, a push, and the run that it starts, drawn live. c is where it
// prints; with --output json one JSON object is all that reaches c.Out.
func DemoCommand(c *console.Console) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See a push become a run, on this machine, in a minute",
		Long: "Start a server on loopback with its data in a temporary directory, make an example repository with real git, push a\n" +
			"commit to it, and draw the run that the push starts. Then the server stays for you to look around, until Ctrl-C.",
		Example: "  kici demo\n  kici demo --exit --output json | jq .run.status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			defer context.AfterFunc(ctx, stop)() // a second signal ends the process at once
			return runDemo(ctx, c, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dataDir, "data-dir", "", "keep the demo here instead of in a temporary directory")
	flags.IntVar(&o.port, "port", 0, "port to listen on (default: 4000, or a free one when that is taken)")
	flags.BoolVar(&o.exit, "exit", false, "end after the run: with 0 when it succeeded, else with 1")
	return cmd
}

// errDemoFailed ends the process with 1 without another word: the run was drawn.
var errDemoFailed = errors.New("the run of the demo did not succeed")

func runDemo(ctx context.Context, c *console.Console, o demoOptions) (err error) {
	dir, temporary, err := demoDir(o.dataDir)
	if err != nil {
		return err
	}
	if temporary {
		defer func() {
			if rerr := os.RemoveAll(dir); rerr != nil && err == nil {
				err = fmt.Errorf("remove the demo's directory: %w", rerr)
			}
		}()
	}
	s, err := demoServer(ctx, c, dir, o.port)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(serving) }()
	defer func() {
		stop()
		if serr := <-ended; serr != nil && err == nil {
			err = serr
		}
	}()
	select {
	case <-s.started:
	case serr := <-ended:
		ended <- nil
		return errors.Join(errors.New("the server did not start"), serr)
	case <-ctx.Done():
		return nil
	}
	return s.demo(ctx, c, o, dir)
}

// demo plays the demo against the running server.
func (s *Server) demo(ctx context.Context, c *console.Console, o demoOptions, dir string) error {
	token, err := os.ReadFile(filepath.Join(s.DataDir(), access.TokenFile))
	if err != nil {
		return fmt.Errorf("read admin token: %w", err)
	}
	cl, err := client.New(client.Config{URL: s.URL(), Token: trimLine(token), UserAgent: "kici-demo"})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "kici demo: server on %s, data in %s\n", s.URL(), s.DataDir())
	repo, err := makeDemoRepository(ctx, cl, filepath.Join(dir, "repositories"))
	if err != nil {
		return err
	}
	since := time.Now()
	if err := repo.push(ctx, c.Err); err != nil {
		return err
	}
	runID, err := demoRun(ctx, cl, since)
	if err != nil {
		return err
	}
	link, err := cl.LoginLink(ctx)
	if err != nil {
		return err
	}
	page := link.URL + "?next=/runs/" + runID
	fmt.Fprintf(c.Err, "Watch it in a browser (this link works once):\n  %s\n\n", page)
	detail, err := drawDemo(ctx, c, cl, runID)
	if err != nil {
		return err
	}
	if err := printDemo(c, detail, page); err != nil {
		return err
	}
	if !o.exit {
		stayOpen(ctx, c.Err, repo.work, s.URL())
	}
	if o.exit && detail.Status != "success" {
		return errDemoFailed
	}
	return nil
}

// drawDemo draws the run where a person looks: on standard output, or beside it when that is for a program.
func drawDemo(ctx context.Context, c *console.Console, cl *client.Client, runID string) (client.RunDetail, error) {
	format, err := c.Format()
	if err != nil {
		return client.RunDetail{}, err
	}
	if format == "table" {
		return watch.Run(ctx, cl, runID, c.Out, watch.OptionsOf(c))
	}
	return watch.Run(ctx, cl, runID, c.Err, watch.Options{Now: c.Now})
}

// printDemo prints the machine-readable result, with --output json or yaml.
func printDemo(c *console.Console, d client.RunDetail, url string) error {
	type job struct {
		ID             string `json:"id"`
		Name           string `json:"name"`
		Status         string `json:"status"`
		AllowedFailure bool   `json:"allowedFailure"`
	}
	var out struct {
		Run struct {
			ID     string `json:"id"`
			Number int64  `json:"number"`
			Status string `json:"status"`
			Jobs   []job  `json:"jobs"`
		} `json:"run"`
		URL string `json:"url"`
	}
	out.Run.ID, out.Run.Number, out.Run.Status, out.URL = d.ID, d.Number, d.Status, url
	for _, j := range d.Jobs {
		out.Run.Jobs = append(out.Run.Jobs, job{j.ID, j.Name, j.Status, j.AllowedFailure})
	}
	return c.Print(out, func() error { return nil })
}

func stayOpen(ctx context.Context, w io.Writer, work, url string) {
	fmt.Fprintf(w, "\nThe server stays. Change something in %s, commit and push, or look around in the browser.\nCtrl-C ends it.\n", work)
	<-ctx.Done()
}

// demoRun waits for the run that the push started, or says why there is none.
func demoRun(ctx context.Context, cl *client.Client, since time.Time) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for {
		list, err := cl.Deliveries(ctx, client.DeliveryQuery{Source: demoSource, Since: since, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(list.Deliveries) == 1 {
			switch d := list.Deliveries[0]; {
			case d.RunID != "":
				return d.RunID, nil
			case d.FinishedAt != nil:
				return "", fmt.Errorf("the push started nothing: %s: %s", d.Status, d.Error)
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", fmt.Errorf("no run appeared within %s of the push; see `kici delivery list`", demoPatience)
		}
	}
}

func demoDir(given string) (dir string, temporary bool, err error) {
	if given != "" {
		dir, err = filepath.Abs(given)
		return dir, false, err
	}
	dir, err = os.MkdirTemp("", "kici-demo-")
	if err != nil {
		return "", false, fmt.Errorf("make a directory for the demo: %w", err)
	}
	return dir, true, nil
}

func demoServer(ctx context.Context, c *console.Console, dir string, port int) (*Server, error) {
	level := "error"
	log, err := obs.NewLogger(c.Err, obs.LogOptions{Format: "auto", Level: level})
	if err != nil {
		return nil, err
	}
	o := Options{
		DataDir: filepath.Join(dir, "data"), Host: "127.0.0.1", Port: port, OnStop: OnStopEnd, AllowRoot: os.Geteuid() == 0,
		Environ: os.Environ(), Log: log,
	}
	if o.AllowRoot {
		fmt.Fprintln(c.Err, "kici demo: you are root, so the demo's jobs run as root; a real server wants --run-as USER")
	}
	if port != 0 {
		return NewServer(ctx, o)
	}
	o.Port = 4000
	s, err := NewServer(ctx, o)
	if errors.Is(err, syscall.EADDRINUSE) {
		o.Port = 0
		s, err = NewServer(ctx, o)
	}
	return s, err
}
