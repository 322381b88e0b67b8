package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
)

// fakeRooms stand for what emits events and adds jobs: once for a request id, as their contract says.
type fakeRooms struct {
	mu     sync.Mutex
	done   map[string]string // request → result
	calls  []string
	fail   error
	refuse *Refused
}

func (f *fakeRooms) once(job, request, what string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, what)
	if f.fail != nil {
		return "", f.fail
	}
	if f.refuse != nil {
		return "", f.refuse
	}
	if f.done == nil {
		f.done = map[string]string{}
	}
	key := job + "/" + request
	if f.done[key] == "" {
		f.done[key] = fmt.Sprintf("%s-%d", what, len(f.done)+1)
	}
	return f.done[key], nil
}

func (f *fakeRooms) EmitFromJob(_ context.Context, e StepEvent) (string, error) {
	return f.once(e.JobID, e.RequestID, "event "+e.Name+" "+string(e.Payload)+" "+strings.Join(e.TargetRepos, "+"))
}

func (f *fakeRooms) AddJobs(_ context.Context, j StepJobs) ([]string, error) {
	name, err := f.once(j.JobID, j.RequestID, "jobs "+j.Text)
	return []string{name}, err
}

func (f *fakeRooms) set(fail error, refuse *Refused) {
	f.mu.Lock()
	f.fail, f.refuse = fail, refuse
	f.mu.Unlock()
}

func (f *fakeRooms) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// working returns an agent that runs a job.
func (r *rig) working() (*peer, wire.JobDispatch, string) {
	r.t.Helper()
	token := r.managed("scaler-x-"+ci.RandomHex(4), "linux")
	row, err := r.st.Read().FleetToken(context.Background(), hashToken(token))
	if err != nil {
		r.t.Fatal(err)
	}
	p, ack := r.connect(token, register(row.AgentID, "linux"))
	if !slices.Contains(ack.Capabilities, wire.TypeEventEmit) || !slices.Contains(ack.Capabilities, wire.TypeJobAdd) {
		r.t.Fatalf("capabilities %v", ack.Capabilities)
	}
	runID, ids := r.jobs(1)
	r.assign(ids[0], runID, row.AgentID)
	var d wire.JobDispatch
	p.expect(wire.TypeJobDispatch, &d)
	p.send(wire.TypeJobAck, wire.JobAck{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt})
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	return p, d, token
}

func (p *peer) emit(d wire.JobDispatch, request, name string) wire.StepResult {
	p.send(wire.TypeEventEmit, wire.EventEmit{
		RequestID: request, JobID: d.JobID, Attempt: d.Attempt, Name: name, Payload: []byte(`{"a":1}`), TargetRepos: []string{"a/b"},
	})
	var res wire.StepResult
	p.expect(wire.TypeEventEmitResult, &res)
	return res
}

func TestAStepEmitsAndAddsJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p, d, _ := r.working()
		res := p.emit(d, "r1", "deploy.done")
		if res.RequestID != "r1" || res.JobID != d.JobID || res.ID != `event deploy.done {"a":1} a/b-1` || res.Code != "" {
			t.Fatalf("%+v", res)
		}
		p.send(wire.TypeEventEmit, wire.EventEmit{RequestID: "r0", JobID: d.JobID, Attempt: d.Attempt, Name: "bare"})
		if p.expect(wire.TypeEventEmitResult, &res); res.ID != "event bare {} -2" {
			t.Fatalf("no payload is {}: %+v", res)
		}
		p.send(wire.TypeJobAdd, wire.JobAdd{RequestID: "r2", JobID: d.JobID, Attempt: d.Attempt, Jobs: "jobs: {}"})
		if p.expect(wire.TypeJobAddResult, &res); res.Code != "" || len(res.Names) != 1 || res.Names[0] != "jobs jobs: {}-3" {
			t.Fatalf("%+v", res)
		}
		r.rooms.set(nil, &Refused{Code: "rate_limit", Message: "too many", RetryAfterMs: 1234})
		if res := p.emit(d, "r3", "x"); res.Code != "rate_limit" || res.RetryAfterMs != 1234 || res.Message != "too many" || res.ID != "" {
			t.Fatalf("%+v", res)
		}
		r.rooms.set(errors.New("secret detail"), nil)
		if res := p.emit(d, "r4", "x"); res.Code != wire.StepUnavailable || res.RetryAfterMs == 0 || strings.Contains(res.Message, "secret") {
			t.Fatalf("%+v", res)
		}
	})
}

// A coordinator that dies between the request and the answer: the agent repeats it, and it happens once.
func TestARequestIsRepeatedAfterARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p, d, token := r.working()
		first := p.emit(d, "r1", "deploy.done") // suppose that this answer was lost
		r.stop()
		r.start(DefaultSettings())
		reg := register(p.id, "linux")
		reg.InFlightJobs = []wire.InFlight{{JobID: d.JobID, RunID: d.RunID, Attempt: d.Attempt}}
		p, _ = r.connect(token, reg)
		if again := p.emit(d, "r1", "deploy.done"); again.ID != first.ID || again.ID == "" {
			t.Fatalf("%+v, then %+v", first, again)
		}
	})
}

// XC-43: an agent asks for a job that it does not hold, or not any more.
func TestXC43OnlyTheHolderMayAsk(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		mine, d, _ := r.working()
		thief, own, _ := r.working()
		if res := mine.emit(wire.JobDispatch{JobID: d.JobID, Attempt: d.Attempt + 1}, "r", "x"); res.Code != wire.StepNotYours {
			t.Fatalf("an attempt that is not: %+v", res)
		}
		for range 4 {
			if res := thief.emit(d, "r", "x"); res.Code != wire.StepNotYours || res.ID != "" {
				t.Fatalf("another agent's job: %+v", res)
			}
		}
		if res := thief.emit(own, "r", "mine"); res.Code != "" {
			t.Fatalf("its own job: %+v", res)
		}
		thief.send(wire.TypeJobAdd, wire.JobAdd{RequestID: "r", JobID: d.JobID, Attempt: d.Attempt, Jobs: "jobs: {}"})
		if code := thief.closeCode(); code != wire.CloseInvalid { // the fifth within a minute (AG-19)
			t.Fatalf("closed with %d", code)
		}
		mine.status(d, 2, "success")
		mine.expect(wire.TypeReportAck, nil)
		if res := mine.emit(d, "r", "x"); res.Code != wire.StepEnded {
			t.Fatalf("after the end: %+v", res)
		}
		if got := r.rooms.called(); len(got) != 1 || !strings.HasPrefix(got[0], "event mine") {
			t.Fatalf("passed on: %q", got)
		}
	})
}

// XC-43: a check that cannot be made is a refusal.
func TestXC43AnUnansweredCheckIsARefusal(t *testing.T) {
	r := newRig(t)
	p, d, _ := r.working()
	s := r.fleet.session(p.id)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.fleet.answerAsk(ctx, s, ask{key: jobKey{d.JobID, d.Attempt}, id: "r", emit: &wire.EventEmit{Name: "x"}})
	if err == nil || len(r.rooms.called()) != 0 {
		t.Fatalf("%v; passed on: %q", err, r.rooms.called())
	}
}

func TestQuestionsBeyondTheBounds(t *testing.T) {
	r := newRig(t)
	p, d, _ := r.working()
	for _, name := range []string{"", strings.Repeat("n", wire.MaxEventNameBytes+1)} {
		if res := p.emit(d, "r", name); res.Code != wire.StepInvalid && res.Code != wire.StepTooLarge {
			t.Errorf("name of %d bytes: %+v", len(name), res)
		}
	}
	if len(r.rooms.called()) != 0 {
		t.Errorf("passed on: %q", r.rooms.called())
	}
	p.send(wire.TypeEventEmit, wire.EventEmit{RequestID: strings.Repeat("r", 65), JobID: d.JobID, Attempt: 1, Name: "x"})
	if code := p.closeCode(); code != wire.CloseInvalid {
		t.Errorf("closed with %d", code)
	}
}

func FuzzDecodeAsk(f *testing.F) {
	f.Add("event.emit", []byte(`{"requestId":"r","jobId":"j","attempt":1,"name":"n","payload":{"a":1}}`))
	f.Add("job.add", []byte(`{"requestId":"r","jobId":"j","attempt":1,"jobs":"jobs: {}"}`))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		a, known, err := decodeAsk(wire.Frame{Type: kind, Body: body})
		if !known || err != nil {
			return
		}
		if a.id == "" || len(a.id) > 64 || a.key.id == "" || a.key.attempt < 1 || (a.emit == nil) == (a.jobs == nil) || a.answer == "" {
			t.Fatalf("%+v", a)
		}
		_ = a.check()
	})
}
