//go:build unix

package agent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// playStep is this test binary inside a step of an agent under test: it asks once and prints the answer.
func playStep() {
	r := stepcall.Request{Type: wire.TypeEventEmit, RequestID: os.Args[2], Name: os.Args[3]}
	if os.Args[1] == "job" {
		r = stepcall.Request{Type: wire.TypeJobAdd, RequestID: os.Args[2], Jobs: os.Args[3]}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := stepcall.Call(ctx, os.Getenv, r)
	fmt.Printf("id=%s names=%s code=%s err=%v\n", res.ID, strings.Join(res.Names, "+"), res.Code, err)
	os.Exit(0)
}

func able(c *coordinator) {
	c.mu.Lock()
	c.ack.Capabilities = []string{wire.TypeEventEmit, wire.TypeJobAdd}
	c.mu.Unlock()
}

// asked waits for n questions and returns all that have come.
func (c *coordinator) asked(kind string, n int) (out []wire.Frame) {
	c.t.Helper()
	c.awaitFrame(kind, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.frames {
		if f.Type == kind {
			out = append(out, f)
		}
	}
	return out
}

func TestStepsEmitAndAddJobs(t *testing.T) {
	c := newCoordinator(t)
	able(c)
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "kici event r1 deploy.done\nkici job r2 'jobs: {a: {}}'\necho $KICI_STEP_TOKEN"})
	emit, err := link.Body[wire.EventEmit](c.asked(wire.TypeEventEmit, 1)[0])
	if err != nil || emit.RequestID != "r1" || emit.JobID != "j" || emit.Attempt != 1 || emit.Name != "deploy.done" {
		t.Fatalf("%+v, %v", emit, err)
	}
	c.send(wire.TypeEventEmitResult, wire.StepResult{RequestID: "r1", JobID: "j", Code: wire.StepUnavailable, RetryAfterMs: 1})
	c.asked(wire.TypeEventEmit, 2) // it asks again by itself
	c.send(wire.TypeEventEmitResult, wire.StepResult{RequestID: "other", JobID: "j", ID: "not this"})
	c.send(wire.TypeEventEmitResult, wire.StepResult{RequestID: "r1", JobID: "j", ID: "e1"})
	add, err := link.Body[wire.JobAdd](c.asked(wire.TypeJobAdd, 1)[0])
	if err != nil || add.RequestID != "r2" || add.Jobs != "jobs: {a: {}}" {
		t.Fatalf("%+v, %v", add, err)
	}
	c.send(wire.TypeJobAddResult, wire.StepResult{RequestID: "r2", JobID: "j", Names: []string{"a"}})
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v %q %q", f, c.text("j", 0), c.logs)
	}
	want := "id=e1 names= code= err=<nil>\nid= names=a code= err=<nil>\n***\n"
	if got := c.text("j", 1); got != want {
		t.Errorf("log %q, want %q: the token is a secret", got, want)
	}
}

// A request whose answer is lost with the link, or with the orchestrator, is made again under the same id.
func TestAStepsRequestIsRepeatedAfterARestart(t *testing.T) {
	c := newCoordinator(t)
	able(c)
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "kici event r1 deploy.done"})
	c.asked(wire.TypeEventEmit, 1)
	c.drop()
	c.asked(wire.TypeEventEmit, 2)
	c.stop()
	c.start()
	for i, f := range c.asked(wire.TypeEventEmit, 3) {
		if b, err := link.Body[wire.EventEmit](f); err != nil || b.RequestID != "r1" {
			t.Fatalf("question %d: %+v, %v", i, b, err)
		}
	}
	c.send(wire.TypeEventEmitResult, wire.StepResult{RequestID: "r1", JobID: "j", ID: "e1"})
	if f := c.final("j"); f.Status != "success" || c.text("j", 1) != "id=e1 names= code= err=<nil>\n" {
		t.Errorf("%+v %q", f, c.text("j", 1))
	}
}

func TestAnOlderOrchestratorCannotBeAsked(t *testing.T) {
	c := newCoordinator(t)
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "kici event r1 deploy.done"})
	if c.final("j"); c.text("j", 1) != "id= names= code=unsupported err=<nil>\n" || c.count(wire.TypeEventEmit) != 0 {
		t.Errorf("%q", c.text("j", 1))
	}
}

// A question that is too large for a message costs the asker a refusal, not the agent its link.
func TestALargeQuestionDoesNotBreakTheLink(t *testing.T) {
	c := newCoordinator(t)
	able(c)
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "kici job r1 \"$(head -c 120000 /dev/zero | tr '\\0' '<')\""})
	if c.final("j"); c.text("j", 1) != "id= names= code=too_large err=<nil>\n" || len(c.registrations()) != 1 {
		t.Errorf("%q, %d registrations", c.text("j", 1), len(c.registrations()))
	}
}
