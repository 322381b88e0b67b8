package exec

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A process left in the background may hold a step's output open. After the step's end the output is read on for
// settleQuiet without a byte, at most settleMax; then it is thrown away, but still read, so that the process does not
// die of a closed pipe before the job ends.
const (
	settleQuiet = 300 * time.Millisecond
	settleMax   = 2 * time.Second
)

// pipe carries one stream of a step.
type pipe struct {
	r, w *os.File
	done chan struct{}

	mu   sync.Mutex
	to   io.Writer
	last time.Time
}

func newPipe(to io.Writer) (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for a step: %w", err)
	}
	if to == nil {
		to = io.Discard
	}
	return &pipe{r: r, w: w, to: to, done: make(chan struct{}), last: time.Now()}, nil
}

// begin reads until everybody has closed the other end.
func (p *pipe) begin() {
	_ = p.w.Close()
	go func() {
		defer close(p.done)
		defer p.r.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := p.r.Read(buf)
			if n > 0 {
				p.mu.Lock()
				_, _ = p.to.Write(buf[:n])
				p.last = time.Now()
				p.mu.Unlock()
			}
			if err != nil {
				return
			}
		}
	}()
}

// settle returns when the stream has ended or gone quiet; nothing is written to the step's log afterwards.
func (p *pipe) settle() {
	ended := time.Now()
	tick := time.NewTicker(settleQuiet / 10)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-p.done:
			open = false
		case now := <-tick.C:
			p.mu.Lock()
			quiet := now.Sub(p.last)
			p.mu.Unlock()
			open = min(quiet, now.Sub(ended)) < settleQuiet && now.Sub(ended) < settleMax
		}
	}
	p.mu.Lock()
	p.to = io.Discard
	p.mu.Unlock()
}

// abandon closes both ends.
func (p *pipe) abandon() {
	_ = p.w.Close()
	_ = p.r.Close()
}
