package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// fakeAgent takes every job and reports success at once.
func fakeAgent(b *testing.B, s *Server, token, id string, done *atomic.Int64) {
	b.Helper()
	conn, _, err := websocket.Dial(context.Background(), "ws://"+s.localAddress()+"/ws", nil)
	if err != nil {
		b.Fatal(err)
	}
	send := func(kind string, body any) {
		raw, _ := json.Marshal(body)
		f, _ := json.Marshal(wire.Frame{Type: kind, Body: raw})
		_ = conn.Write(context.Background(), websocket.MessageText, f)
	}
	send(wire.TypeAuthRequest, wire.AuthRequest{Token: token, ProtocolVersion: 1})
	send(wire.TypeRegister, wire.Register{AgentID: id, Platform: "linux", Arch: "amd64", Hostname: "box", MaxConcurrency: 1})
	ready := make(chan struct{})
	go func() {
		for {
			_, data, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			var f wire.Frame
			_ = json.Unmarshal(data, &f)
			switch f.Type {
			case wire.TypeRegisterAck:
				close(ready)
			case wire.TypeJobDispatch:
				var d wire.JobDispatch
				_ = json.Unmarshal(f.Body, &d)
				send(wire.TypeJobAck, wire.JobAck{JobID: d.JobID, Attempt: d.Attempt})
				send(wire.TypeJobStatus, wire.JobStatus{Seq: 1, RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Status: "running"})
				send(wire.TypeJobStatus, wire.JobStatus{Seq: 2, RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Status: "success"})
			case wire.TypeReportAck:
				var a wire.ReportAck
				if _ = json.Unmarshal(f.Body, &a); a.Seq == 2 {
					done.Add(1)
				}
			}
		}
	}()
	<-ready
	b.Cleanup(func() { _ = conn.CloseNow() })
}

// BenchmarkJobs is jobs from run to result through placement, assignment and the real protocol, with 64 fake agents.
func BenchmarkJobs(b *testing.B) {
	s, err := NewServer(b.Context(), Options{DataDir: b.TempDir(), AllowRoot: true})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Started()
	b.Cleanup(func() { stop(); <-ended })
	p, err := s.access.Authenticate(b.Context(), s.AdminToken())
	if err != nil {
		b.Fatal(err)
	}
	token, _, err := s.access.CreateAgentToken(b.Context(), p, []string{"fake"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	var done atomic.Int64
	for i := range 64 {
		fakeAgent(b, s, token, fmt.Sprintf("fake-%d", i), &done)
	}
	insert := func() {
		w := lock.Workflow{Name: "ci", Jobs: []lock.Job{{Name: "j", RunsOn: lock.Selector{Labels: []string{"fake"}}, Steps: []lock.Step{{Run: "true"}}}}}
		plan := s.runs.Plan(run.New{OrgID: access.DefaultOrg, Repo: "acme/shop", Workflow: w, Event: ci.Event{Type: "push", SHA: strings.Repeat("a", 40)}})
		if err := s.store.Write(b.Context(), func(tx *store.Tx) error { _, _, err := s.runs.Insert(tx, plan); return err }); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	var next atomic.Int64
	for range 16 { // deliveries come side by side too
		go func() {
			for next.Add(1) <= int64(b.N) {
				insert()
			}
		}()
	}
	for done.Load() < int64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
