package stepcmd_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/eventcmd"
	"github.com/kici-go/kici/internal/cli/jobcmd"
	"github.com/kici-go/kici/internal/wire"
)

// step is a console inside a step whose agent answers with res.
func step(t *testing.T, in string, res wire.StepResult) (c *console.Console, out *bytes.Buffer, asked *[]stepcall.Request) {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	asked = &[]stepcall.Request{}
	s, err := stepcall.Listen(stepcall.Config{
		Dir: dir, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, r stepcall.Request) wire.StepResult { *asked = append(*asked, r); return res },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); _ = os.RemoveAll(dir) })
	out = &bytes.Buffer{}
	vars := s.Variables()
	return &console.Console{In: strings.NewReader(in), Out: out, Err: out, Output: "table", Now: time.Now, Getenv: func(n string) string { return vars[n] }}, out, asked
}

func emit(c *console.Console, args ...string) error {
	cmd := eventcmd.New(c)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"emit"}, args...))
	cmd.SetOut(c.Out)
	return cmd.Execute()
}

func addJobs(c *console.Console, args ...string) error {
	cmd := jobcmd.New(c)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"add"}, args...))
	cmd.SetOut(c.Out)
	return cmd.Execute()
}

func TestEmitInsideAStep(t *testing.T) {
	c, out, asked := step(t, `{"from":"stdin"}`, wire.StepResult{ID: "e1"})
	if err := emit(c, "deploy.done", "--payload", "-", "--to", "a/b", "--to", "c/d", "--request-id", "mine"); err != nil {
		t.Fatal(err)
	}
	r := (*asked)[0]
	if out.String() != "e1\n" || r.Name != "deploy.done" || string(r.Payload) != `{"from":"stdin"}` || strings.Join(r.TargetRepos, " ") != "a/b c/d" || r.RequestID != "mine" {
		t.Errorf("printed %q, asked %+v", out, r)
	}
	out.Reset()
	c.JSON = true
	if err := emit(c, "x"); err != nil || !strings.Contains(out.String(), `"eventId": "e1"`) {
		t.Errorf("%v, printed %q", err, out)
	}
	if (*asked)[1].RequestID == "" || (*asked)[1].RequestID == "mine" {
		t.Errorf("asked %+v", (*asked)[1])
	}
	if err := emit(c, "x", "--payload", "[1]"); console.CodeOf(err) != console.ExitUsage {
		t.Errorf("a payload that is no object: %v", err)
	}
}

// XC-42, XC-41: a refusal names its reason, and when it may be tried again; the exit code is 1.
func TestRefusalsAreSaid(t *testing.T) {
	c, _, _ := step(t, "", wire.StepResult{Code: "rate_limit", Message: "100 of them in a minute", RetryAfterMs: 1500})
	if err := emit(c, "x"); console.CodeOf(err) != 1 || !strings.Contains(err.Error(), "100 of them in a minute; try again in 1.5s") {
		t.Errorf("%v", err)
	}
	c, _, _ = step(t, "", wire.StepResult{Code: "reserved_name", Message: `names that begin with "kici." are reserved`})
	if err := emit(c, "kici.x"); console.CodeOf(err) != 1 || !strings.Contains(err.Error(), `"kici."`) {
		t.Errorf("%v", err)
	}
}

func TestJobAddInsideAStep(t *testing.T) {
	c, out, asked := step(t, "jobs: {a: {}}", wire.StepResult{Names: []string{"a", "b (1)"}})
	if err := addJobs(c, "-"); err != nil || out.String() != "a\nb (1)\n" || (*asked)[0].Jobs != "jobs: {a: {}}" {
		t.Fatalf("%v, printed %q, asked %+v", err, out, *asked)
	}
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte("jobs: {b: {}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := addJobs(c, file); err != nil || (*asked)[1].Jobs != "jobs: {b: {}}" {
		t.Fatalf("%v, asked %+v", err, *asked)
	}
	if err := addJobs(c, file+".missing"); console.CodeOf(err) != 1 {
		t.Errorf("a missing file: %v", err)
	}
	c.Getenv = func(string) string { return "" }
	if err := addJobs(c, file); console.CodeOf(err) != 1 || !strings.Contains(err.Error(), "not a step") {
		t.Errorf("outside a step: %v", err)
	}
}
