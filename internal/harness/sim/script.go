package sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/job"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// script runs a job whose steps say "sim ms=1500 lines=3 exit=0": they take time, write lines, ask for jobs and events (ask.go) and end.
type script struct {
	a   *agentProcess
	cfg job.Config

	mu       sync.Mutex
	grace    time.Duration
	soft     chan struct{} // cancelled
	hard     chan struct{} // forced, aborted
	gone     chan struct{} // the process has died
	finished chan struct{} // Run has returned
	aborted  error
	once     [3]sync.Once
}

func newScript(a *agentProcess, c job.Config) *script {
	s := &script{a: a, cfg: c, grace: time.Second, soft: make(chan struct{}), hard: make(chan struct{}), gone: make(chan struct{}), finished: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scripts == nil {
		a.scripts = map[*script]struct{}{}
	}
	a.scripts[s] = struct{}{}
	if a.dead.Load() {
		s.die()
	}
	return s
}

func (s *script) close(i int, c chan struct{}) { s.once[i].Do(func() { close(c) }) }

// Cancel implements agent.Performer: what runs ends within the grace.
func (s *script) Cancel(force bool, grace time.Duration) {
	if grace > 0 {
		s.mu.Lock()
		s.grace = grace
		s.mu.Unlock()
	}
	s.close(0, s.soft)
	if force {
		s.close(1, s.hard)
	}
}

// Abort implements agent.Performer.
func (s *script) Abort(why error) {
	s.mu.Lock()
	s.aborted = why
	s.mu.Unlock()
	s.close(0, s.soft)
	s.close(1, s.hard)
}

func (s *script) die() {
	s.close(2, s.gone)
	s.close(0, s.soft)
	s.close(1, s.hard)
}

// step is what a step's text asks for.
type step struct {
	wait        time.Duration
	lines, exit int
	stubborn    bool   // does not end when it is asked to
	add         int    // jobs that it adds to its run
	emit        string // name of an event that it emits
}

func parseStep(text string) (st step) {
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "ms":
			st.wait = quick(time.Duration(n) * time.Millisecond)
		case "lines":
			st.lines = n
		case "exit":
			st.exit = n
		case "stubborn":
			st.stubborn = true
		case "add":
			st.add = n
		case "emit":
			st.emit = value
		}
	}
	return st
}

// Run implements agent.Performer.
func (s *script) Run() job.Outcome {
	defer close(s.finished)
	out := job.Outcome{Status: ci.JobSuccess, StartedAt: s.now(), KillMethod: "sim"}
	var def lock.Job
	if err := json.Unmarshal(s.cfg.Spec.Job, &def); err != nil {
		return job.Outcome{Status: ci.JobFailed, Error: err.Error(), InitFailure: job.InitSpec, StartedAt: s.now(), FinishedAt: s.now()}
	}
	var timeout <-chan time.Time
	if d := time.Duration(s.cfg.Spec.TimeoutMs) * time.Millisecond; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	select { // as job.Job does: until then the job may be given to another agent
	case <-s.cfg.Begun:
	case <-s.soft:
	}
	if s.stoppedAlready() {
		out.Status = ci.JobCancelled
	}
	for i, st := range def.Steps {
		if out.Status != ci.JobSuccess {
			s.report(wire.StepStatus{StepIndex: i + 1, Name: st.Name, Status: string(ci.StepSkipped), FinishedAt: s.now()})
			continue
		}
		s.step(i+1, st.Name, parseStep(st.Run), timeout, &out)
	}
	out.FinishedAt = s.now()
	return out
}

func (s *script) stoppedAlready() bool {
	select {
	case <-s.soft:
		return true
	default:
		return false
	}
}

func (s *script) step(i int, name string, st step, timeout <-chan time.Time, out *job.Outcome) {
	log, err := s.cfg.Spool.Open(i)
	if err != nil {
		out.Status, out.Error = ci.JobFailed, err.Error()
		return
	}
	defer log.Close()
	began := s.now()
	s.report(wire.StepStatus{StepIndex: i, Name: name, Status: string(ci.StepRunning), StartedAt: began})
	end := s.a.m.w.watch.step(s, i)
	s.ask(i, st)
	status, message := s.work(i, st, timeout, func(line string) {
		log.Notice("%s", line)
		s.a.m.w.watch.wrote(s, i)
	})
	end()
	r := wire.StepStatus{StepIndex: i, Name: name, Status: string(status), StartedAt: began, FinishedAt: s.now(), Error: message}
	if status != ci.StepCancelled {
		r.ExitCode = &st.exit
	}
	s.report(r)
	switch status {
	case ci.StepFailed:
		out.Status, out.Error = ci.JobFailed, message
	case ci.StepCancelled:
		out.Status = ci.JobCancelled
		if message != "" {
			out.Status, out.Error = ci.JobFailed, message
		}
	}
}

// work lets the step's time pass. Its lines come evenly.
func (s *script) work(i int, st step, timeout <-chan time.Time, line func(string)) (ci.StepStatus, string) {
	h := s.a.m.w.seed.at(s.a.actor+" step", uint64(i))
	part := st.wait / time.Duration(st.lines+1)
	for n := 0; n <= st.lines; n++ {
		t := time.NewTimer(part + time.Duration(h%100_000))
		select {
		case <-t.C:
		case <-timeout:
			t.Stop()
			return ci.StepCancelled, "the job exceeded its timeout"
		case <-s.soft:
			t.Stop()
			return s.stopped(st)
		}
		if n < st.lines {
			line(fmt.Sprintf("%s/%d step %d line %d", s.cfg.Spec.JobID, s.cfg.Spec.Attempt, i, n))
		}
	}
	if st.exit != 0 {
		return ci.StepFailed, fmt.Sprintf("exit code %d", st.exit)
	}
	return ci.StepSuccess, ""
}

func (s *script) stopped(st step) (ci.StepStatus, string) {
	if st.stubborn {
		s.mu.Lock()
		grace := s.grace
		s.mu.Unlock()
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.hard:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted != nil {
		return ci.StepCancelled, s.aborted.Error()
	}
	return ci.StepCancelled, ""
}

func (s *script) report(r wire.StepStatus) {
	r.RunID, r.JobID, r.Attempt = s.cfg.Spec.RunID, s.cfg.Spec.JobID, s.cfg.Spec.Attempt
	s.cfg.Report(r)
}

func (s *script) now() int64 { return s.cfg.Now().UnixMilli() }
