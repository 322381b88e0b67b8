package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/wire"
)

// fakeAgent speaks the whole protocol of an agent and runs nothing: acknowledge, fetch the description, running, one step with
// one log line, success.
type fakeAgent struct {
	id, token, base string
	conn            *websocket.Conn
	http            *http.Client
	mu              sync.Mutex // serialises writes
	dispatched      func(jobID string, at time.Time)
	finished        func(jobID string)
	acks            chan wire.ReportAck
}

// connect dials, authenticates and registers.
func (a *fakeAgent) connect(ctx context.Context, labels []string) error {
	conn, resp, err := websocket.Dial(ctx, strings.Replace(a.base, "http", "ws", 1)+wire.PathSocket, nil)
	if err != nil {
		return err
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	conn.SetReadLimit(wire.MaxFrameBytes)
	a.conn = conn
	if err := a.send(ctx, wire.TypeAuthRequest, wire.AuthRequest{Token: a.token, ProtocolVersion: wire.ProtocolVersion}); err != nil {
		return err
	}
	if err := a.expect(ctx, wire.TypeAuthSuccess); err != nil {
		return err
	}
	reg := wire.Register{
		MessageID: "1", AgentID: a.id, Labels: labels, Platform: "linux", Arch: "amd64", Version: "bench", MaxConcurrency: 1,
		InFlightJobs: []wire.InFlight{}, Hostname: "bench", RunningAsUID: 1000,
	}
	if err := a.send(ctx, wire.TypeRegister, reg); err != nil {
		return err
	}
	return a.expect(ctx, wire.TypeRegisterAck)
}

func (a *fakeAgent) send(ctx context.Context, kind string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	frame, err := json.Marshal(wire.Frame{Type: kind, Body: raw})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn.Write(ctx, websocket.MessageText, frame)
}

func (a *fakeAgent) read(ctx context.Context) (wire.Frame, error) {
	var f wire.Frame
	_, data, err := a.conn.Read(ctx)
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(data, &f)
}

func (a *fakeAgent) expect(ctx context.Context, kind string) error {
	for {
		f, err := a.read(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", kind, err)
		}
		if f.Type == kind {
			return nil
		}
	}
}

// serve works until ctx ends or the link does.
func (a *fakeAgent) serve(ctx context.Context) {
	a.acks = make(chan wire.ReportAck, 16)
	for {
		f, err := a.read(ctx)
		if err != nil {
			return
		}
		switch f.Type {
		case wire.TypeHeartbeat:
			_ = a.send(ctx, wire.TypeHeartbeat, wire.Heartbeat{Timestamp: time.Now().UnixMilli()})
		case wire.TypeReportAck:
			var ack wire.ReportAck
			if json.Unmarshal(f.Body, &ack) == nil {
				select {
				case a.acks <- ack:
				default:
				}
			}
		case wire.TypeJobDispatch:
			at := time.Now()
			var d wire.JobDispatch
			if err := json.Unmarshal(f.Body, &d); err != nil {
				return
			}
			if a.dispatched != nil {
				a.dispatched(d.JobID, at)
			}
			go a.work(ctx, d)
		}
	}
}

func (a *fakeAgent) work(ctx context.Context, d wire.JobDispatch) {
	now := time.Now().UnixMilli()
	_ = a.send(ctx, wire.TypeJobAck, wire.JobAck{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt})
	if err := a.spec(ctx, d.JobID); err != nil {
		return
	}
	_ = a.send(ctx, wire.TypeJobStatus, wire.JobStatus{Seq: 1, RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Status: "running", StartedAt: now})
	_ = a.send(ctx, wire.TypeStepStatus, wire.StepStatus{Seq: 2, RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, StepIndex: 1, Name: "step", Status: "running", StartedAt: now})
	if err := a.log(ctx, d, fmt.Sprintf(`{"ts":%d,"level":"stdout","msg":"hello"}`+"\n", now)); err != nil {
		return
	}
	zero := 0
	_ = a.send(ctx, wire.TypeStepStatus, wire.StepStatus{Seq: 3, RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, StepIndex: 1, Name: "step", Status: "success", StartedAt: now, FinishedAt: now, ExitCode: &zero})
	_ = a.send(ctx, wire.TypeJobStatus, wire.JobStatus{Seq: 4, RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Status: "success", StartedAt: now, FinishedAt: time.Now().UnixMilli()})
	for {
		select {
		case ack := <-a.acks:
			if ack.JobID == d.JobID && ack.Seq >= 4 {
				if a.finished != nil {
					a.finished(d.JobID)
				}
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (a *fakeAgent) spec(ctx context.Context, job string) error {
	return a.call(ctx, http.MethodGet, strings.Replace(wire.PathJob, "{job}", job, 1), nil)
}

func (a *fakeAgent) log(ctx context.Context, d wire.JobDispatch, lines string) error {
	path := strings.Replace(wire.PathLog, "{job}", d.JobID, 1) + fmt.Sprintf("?step=1&offset=0&attempt=%d", d.Attempt)
	return a.call(ctx, http.MethodPost, path, []byte(lines))
}

func (a *fakeAgent) call(ctx context.Context, method, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("X-Kici-Agent", a.id)
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return nil
}

// crowd connects n fake agents with one static token.
type crowd struct {
	agents []*fakeAgent
	failed atomic.Int64
	wg     sync.WaitGroup
	stop   context.CancelFunc
}

func gather(ctx context.Context, s *server, n int, labels []string, prepare func(*fakeAgent)) (*crowd, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	t, err := c.CreateAgentToken(ctx, client.NewAgentToken{Labels: labels})
	if err != nil {
		return nil, err
	}
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	ctx, stop := context.WithCancel(ctx)
	crowd := &crowd{stop: stop}
	limit := make(chan struct{}, 32)
	errs := make(chan error, n)
	for i := range n {
		a := &fakeAgent{id: fmt.Sprintf("bench-%d-%d", s.port, i), token: t.Token, base: s.url, http: h}
		if prepare != nil {
			prepare(a)
		}
		crowd.agents = append(crowd.agents, a)
		limit <- struct{}{}
		go func() {
			defer func() { <-limit }()
			errs <- a.connect(ctx, labels)
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			stop()
			return nil, err
		}
	}
	for _, a := range crowd.agents {
		crowd.wg.Go(func() {
			if a.serve(ctx); ctx.Err() == nil {
				crowd.failed.Add(1)
			}
		})
	}
	return crowd, nil
}

func (c *crowd) leave() {
	c.stop()
	for _, a := range c.agents {
		_ = a.conn.CloseNow()
	}
	c.wg.Wait()
}
