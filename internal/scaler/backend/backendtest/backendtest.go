// Package backendtest is the conformance suite that every backend passes.
package backendtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Subject is a backend under test, on a host of its own.
type Subject struct {
	// Open makes a backend for the named scaler on the same host, as a restarted process would. The suite closes it.
	Open func(t *testing.T, scaler string) backend.Backend
	// Spec is a launch that works and runs until it is ended.
	Spec func(id string) backend.Spec
	// Kill makes a running agent die by itself, from outside.
	Kill func(t *testing.T, id string, launch json.RawMessage)
	// Left names what is still on the host of an agent, by whatever means the subject has; empty when nothing is.
	Left func(id string) []string
}

// Run runs the suite; subject is called once a case.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	cases := []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"create list delete", lifecycle},
		{"delete of nothing", deleteNothing},
		{"create twice is one agent", createTwice},
		{"a restarted backend finds its agents", restart},
		{"scalers do not see each other", apart},
		{"a dead agent is listed until deleted", dead},
		{"cancelled create leaves nothing", cancelled},
		{"plan is enough to delete", planDelete},
		{"many at once", concurrent},
		{"delete at the same time", deleteTwice},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, subject(t)) })
	}
}

const patience = 20 * time.Second

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, s Subject, scaler string) backend.Backend {
	t.Helper()
	b := s.Open(t, scaler)
	t.Cleanup(func() { shut(t, b) })
	return b
}

func shut(t *testing.T, b backend.Backend) {
	if c, ok := b.(backend.Closer); ok {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func create(t *testing.T, b backend.Backend, s backend.Spec) backend.Instance {
	t.Helper()
	var err error
	if s.Launch, err = b.Plan(s); err != nil {
		t.Fatalf("plan: %v", err)
	}
	if !json.Valid(s.Launch) {
		t.Fatalf("plan is not JSON: %s", s.Launch)
	}
	inst, err := b.Create(ctxOf(t), s)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if inst.AgentID != s.AgentID || !inst.Running || !json.Valid(inst.Launch) {
		t.Fatalf("create returned %+v", inst)
	}
	return inst
}

func remove(t *testing.T, b backend.Backend, r backend.Ref) {
	t.Helper()
	if err := b.Delete(ctxOf(t), r); err != nil && !errors.Is(err, backend.ErrNotFound) {
		t.Fatalf("delete: %v", err)
	}
}

func find(t *testing.T, b backend.Backend, id string) (backend.Instance, bool) {
	t.Helper()
	list, err := b.List(ctxOf(t))
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	i := slices.IndexFunc(list, func(x backend.Instance) bool { return x.AgentID == id })
	if i < 0 {
		return backend.Instance{}, false
	}
	return list[i], true
}

func nothingLeft(t *testing.T, s Subject, b backend.Backend, id string) {
	t.Helper()
	if inst, ok := find(t, b, id); ok {
		t.Errorf("%s is still listed: %+v", id, inst)
	}
	if left := s.Left(id); len(left) > 0 {
		t.Errorf("%s left %v", id, left)
	}
}

func lifecycle(t *testing.T, s Subject) {
	b := open(t, s, "one")
	inst := create(t, b, s.Spec("scaler-x-00000001"))
	got, ok := find(t, b, inst.AgentID)
	if !ok || !got.Running {
		t.Fatalf("listed as %+v (%v)", got, ok)
	}
	if !bytes.Equal(got.Launch, inst.Launch) {
		t.Errorf("list says %s, create said %s", got.Launch, inst.Launch)
	}
	remove(t, b, backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch})
	nothingLeft(t, s, b, inst.AgentID)
	if b.Capabilities().Type == "" {
		t.Error("no type")
	}
}

func deleteNothing(t *testing.T, s Subject) {
	b := open(t, s, "one")
	for range 2 {
		if err := b.Delete(ctxOf(t), backend.Ref{AgentID: "scaler-x-0000dead"}); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("delete of nothing: %v", err)
		}
	}
	inst := create(t, b, s.Spec("scaler-x-00000002"))
	remove(t, b, backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch})
	if err := b.Delete(ctxOf(t), backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch}); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("second delete: %v", err)
	}
}

func createTwice(t *testing.T, s Subject) {
	b := open(t, s, "one")
	spec := s.Spec("scaler-x-00000003")
	first := create(t, b, spec)
	second := create(t, b, spec)
	if !bytes.Equal(first.Launch, second.Launch) {
		t.Errorf("the second create made another agent: %s, %s", first.Launch, second.Launch)
	}
	remove(t, b, backend.Ref{AgentID: spec.AgentID, Launch: first.Launch})
	nothingLeft(t, s, b, spec.AgentID)
}

func restart(t *testing.T, s Subject) {
	before := s.Open(t, "one")
	inst := create(t, before, s.Spec("scaler-x-00000004"))
	survives := before.Capabilities().SurvivesRestart
	shut(t, before)
	after := open(t, s, "one")
	got, ok := find(t, after, inst.AgentID)
	if survives && (!ok || !got.Running) {
		t.Fatalf("after a restart: %+v (%v)", got, ok)
	}
	launch := got.Launch
	remove(t, after, backend.Ref{AgentID: inst.AgentID, Launch: launch})
	nothingLeft(t, s, after, inst.AgentID)
}

func apart(t *testing.T, s Subject) {
	one, two := open(t, s, "one"), open(t, s, "two")
	inst := create(t, one, s.Spec("scaler-x-00000005"))
	if got, ok := find(t, two, inst.AgentID); ok {
		t.Errorf("scaler two sees %+v", got)
	}
	remove(t, one, backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch})
	nothingLeft(t, s, one, inst.AgentID)
}

func dead(t *testing.T, s Subject) {
	b := open(t, s, "one")
	inst := create(t, b, s.Spec("scaler-x-00000006"))
	s.Kill(t, inst.AgentID, inst.Launch)
	deadline := time.Now().Add(patience)
	for {
		got, ok := find(t, b, inst.AgentID)
		if !ok || !got.Running {
			if ok && len(got.Tail) > 50 {
				t.Errorf("tail of %d lines", len(got.Tail))
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a killed agent is listed as running")
		}
		time.Sleep(5 * time.Millisecond)
	}
	remove(t, b, backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch})
	nothingLeft(t, s, b, inst.AgentID)
}

func cancelled(t *testing.T, s Subject) {
	b := open(t, s, "one")
	spec := s.Spec("scaler-x-00000007")
	spec.Launch, _ = b.Plan(spec)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if inst, err := b.Create(ctx, spec); err == nil {
		spec.Launch = inst.Launch // a backend may be too quick to notice
	}
	remove(t, b, backend.Ref{AgentID: spec.AgentID, Launch: spec.Launch})
	nothingLeft(t, s, b, spec.AgentID)
}

// planDelete: the process that created died before it recorded the result.
func planDelete(t *testing.T, s Subject) {
	before := s.Open(t, "one")
	spec := s.Spec("scaler-x-00000008")
	var err error
	if spec.Launch, err = before.Plan(spec); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Create(ctxOf(t), spec); err != nil {
		t.Fatal(err)
	}
	shut(t, before)
	after := open(t, s, "one")
	remove(t, after, backend.Ref{AgentID: spec.AgentID, Launch: spec.Launch})
	nothingLeft(t, s, after, spec.AgentID)
}

func concurrent(t *testing.T, s Subject) {
	b := open(t, s, "one")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			spec := s.Spec("scaler-x-0000010" + string(rune('0'+i)))
			spec.Launch, _ = b.Plan(spec)
			inst, err := b.Create(ctxOf(t), spec)
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			if _, err := b.List(ctxOf(t)); err != nil {
				t.Errorf("list: %v", err)
			}
			if err := b.Delete(ctxOf(t), backend.Ref{AgentID: spec.AgentID, Launch: inst.Launch}); err != nil {
				t.Errorf("delete: %v", err)
			}
			if left := s.Left(spec.AgentID); len(left) > 0 {
				t.Errorf("%s left %v", spec.AgentID, left)
			}
		})
	}
	group.Wait()
}

func deleteTwice(t *testing.T, s Subject) {
	b := open(t, s, "one")
	inst := create(t, b, s.Spec("scaler-x-00000009"))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			err := b.Delete(ctxOf(t), backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch})
			if err != nil && !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("delete: %v", err)
			}
		})
	}
	group.Wait()
	nothingLeft(t, s, b, inst.AgentID)
}
