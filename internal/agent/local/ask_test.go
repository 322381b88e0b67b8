package local

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
)

// playStep is this test binary as the kici of a step: it asks once and prints the answer.
func playStep() {
	r := stepcall.Request{Type: wire.TypeEventEmit, RequestID: os.Args[2], Name: os.Args[3], Payload: []byte(`{"a":1}`)}
	if os.Args[1] == "job" {
		r = stepcall.Request{Type: wire.TypeJobAdd, RequestID: os.Args[2], Jobs: os.Args[3]}
	}
	res, err := stepcall.Call(context.Background(), os.Getenv, r)
	if err != nil || res.Code != "" {
		_, _ = os.Stdout.WriteString("refused: " + res.Code + " " + res.Message + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("done " + strings.Join(res.Names, "+") + "\n")
	os.Exit(0)
}

func TestALocalStepAddsJobsAndEmits(t *testing.T) {
	dir := repository(t)
	tree, err := Inspect(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var events []Emitted
	s, log := real(t, `
  plan:
    runs-on: linux
    steps:
      - run: |
          kici job r1 'jobs: {one: {runs-on: linux, steps: [{run: echo one runs}]}, two: {needs: [one, plan], runs-on: linux, steps: [{run: echo two runs}]}}'
          kici job r1 'jobs: {other: {runs-on: linux, steps: [{run: echo no}]}}'
          kici event r2 deploy.done
          kici event r3 __forged || true
          kici job r4 'jobs: {plan: {runs-on: linux, steps: [{run: echo no}]}}' || true
`, Options{Tree: tree, Executable: os.Args[0], Event: func(e Emitted) { events = append(events, e) }})
	got := map[string]ci.JobStatus{}
	for _, j := range s.Jobs {
		got[j.Name] = j.Status
	}
	if len(got) != 3 || got["plan"] != ci.JobSuccess || got["one"] != ci.JobSuccess || got["two"] != ci.JobSuccess || s.Status != ci.RunSuccess {
		t.Fatalf("run %s, jobs %v\n%s", s.Status, got, log)
	}
	if strings.Index(log, "two: two runs") < strings.Index(log, "one: one runs") || !strings.Contains(log, `refused: reserved_name names that begin with "__"`) ||
		strings.Count(log, "done one+two") != 2 || !strings.Contains(log, `a job "plan" already`) {
		t.Errorf("log:\n%s", log)
	}
	if len(events) != 1 || events[0].Name != "deploy.done" || events[0].Payload != `{"a":1}` || events[0].Job != "plan" || events[0].ID == "" {
		t.Errorf("%+v", events)
	}
}
