//go:build unix

package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/wire"
)

// peer is an orchestrator that keeps reports by its own rule: what comes behind a higher number is dropped.
type peer struct {
	mu    sync.Mutex
	up    bool
	last  int64 // highest it has seen
	kept  []int64
	fails func() bool
}

func (p *peer) send(_ string, body any) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	seq := body.(int64)
	if !p.up || p.fails() {
		p.up = false
		return false
	}
	if seq > p.last {
		p.last = seq
		p.kept = append(p.kept, seq)
	}
	return true
}

// Whatever breaks when, every report arrives, in order.
func TestOutboxProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		broken := rapid.SliceOfN(rapid.Bool(), 200, 200).Draw(t, "broken")
		calls := 0
		p := &peer{up: true, fails: func() bool { calls++; return calls < len(broken) && broken[calls] && broken[(calls*7)%len(broken)] }}
		o := newOutbox(p.send, func() time.Duration { return 0 })
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); o.run(ctx) }()
		n := rapid.IntRange(1, 100).Draw(t, "n")
		for range n {
			o.add("x", func(seq int64) any { return seq })
			if rapid.IntRange(0, 9).Draw(t, "do") == 0 {
				p.mu.Lock()
				last := p.last
				p.mu.Unlock()
				o.ack(last)
			}
		}
		o.seal()
		deadline := time.After(time.Minute)
		for {
			p.mu.Lock()
			last, up := p.last, p.up
			p.mu.Unlock()
			o.ack(last)
			if !up { // a new connection
				o.pause()
				p.mu.Lock()
				p.up = true
				p.mu.Unlock()
				o.resume()
			}
			select {
			case <-o.drained:
				cancel()
				<-done
				if len(p.kept) != n || p.kept[n-1] != int64(n) {
					t.Fatalf("kept %v of %d", p.kept, n)
				}
				return
			case <-deadline:
				t.Fatal("not drained")
			case <-time.After(50 * time.Microsecond):
			}
		}
	})
}

// Frames are input from outside: whatever comes, the agent answers or closes the link, and does not fall over.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{
		`{"type":"job.dispatch","body":{"jobId":"j","attempt":1}}`, `{"type":"job.cancel","body":{"jobId":"t","force":true,"graceMs":-1}}`,
		`{"type":"report.ack","body":{"jobId":"t","attempt":1,"seq":9223372036854775807,"gone":true}}`, `{"type":"agent.drain"}`,
		`{"type":"register.ack","body":null}`, `{"type":7}`, `[]`, `{"type":"job.cancel","body":[]}`, `{"type":"unknown","body":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := link.Decode(data)
		if err != nil {
			return
		}
		cfg := Config{URL: "http://127.0.0.1:1", AgentID: "a", Log: discard()}
		if err := cfg.complete(); err != nil {
			t.Fatal(err)
		}
		l, err := link.New(link.Config{URL: cfg.URL, HTTP: cfg.HTTP, Now: cfg.Now, Log: cfg.Log})
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{cfg: cfg, link: l, wake: service.NewWake(), draining: frame.Type == wire.TypeJobDispatch}
		if frame.Type != wire.TypeJobDispatch {
			a.task = a.newTask(wire.JobDispatch{RunID: "r", JobID: "t", Attempt: 1})
			defer a.task.stop(nil)
		}
		_ = a.Frame(frame)
	})
}
