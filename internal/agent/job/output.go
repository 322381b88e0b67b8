package job

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/kici-go/kici/internal/agent/envfile"
	"github.com/kici-go/kici/internal/agent/mask"
	"github.com/kici-go/kici/internal/agent/spool"
)

// output carries one stream of a step into its log: workflow commands are obeyed line by line, then secrets are masked,
// then the spool makes lines. It never fails: a job does not stop because its log has trouble.
type output struct {
	job      *Job
	commands *commands
	stream   *spool.Stream
	mask     *mask.Stream

	held    []byte // the beginning of a line that may be, or is, a command
	midLine bool   // the current line is ordinary text and has begun
}

// commands is what the streams of one step share.
type commands struct {
	mu    sync.Mutex
	until string // ::stop-commands:: was said; this word ends it

	full atomic.Bool // something was said about a disk without space
}

func (j *Job) newOutput(log *spool.Step, level string) *output {
	return j.newSharedOutput(log, level, &commands{})
}

func (j *Job) newSharedOutput(log *spool.Step, level string, c *commands) *output {
	return &output{job: j, commands: c, stream: log.Stream(level), mask: j.mask.Stream()}
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if o.midLine || len(o.held) == 0 && !mayBegin(p[0]) {
			k := textEnd(p)
			o.midLine = p[k-1] != '\n'
			o.text(p[:k])
			p = p[k:]
			continue
		}
		p = o.holdLine(p)
	}
	return n, nil
}

// mayBegin reports whether a command line can begin with c.
func mayBegin(c byte) bool { return c == ':' || c == ' ' || c == '\t' }

// textEnd is the end of the ordinary text that p begins with: where a line starts that may be a command.
func textEnd(p []byte) int {
	at := 0
	for {
		i := bytes.IndexByte(p[at:], '\n')
		if i < 0 || at+i+1 == len(p) {
			return len(p)
		}
		at += i + 1
		if mayBegin(p[at]) {
			return at
		}
	}
}

// holdLine collects a line as long as it may be a command, and returns what it did not take.
func (o *output) holdLine(p []byte) []byte {
	i := bytes.IndexByte(p, '\n')
	part := p
	if i >= 0 {
		part = p[:i+1]
	}
	o.held = append(o.held, part...)
	p = p[len(part):]
	switch {
	case !couldBeCommand(o.held) || len(o.held) > envfile.MaxCommandBytes:
		o.midLine = i < 0
		o.text(o.held)
		o.held = o.held[:0]
	case i >= 0:
		line := o.obey(o.held)
		o.text(line)
		o.held = o.held[:0]
	}
	return p
}

func couldBeCommand(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) == 0 || line[0] == ':' && (len(line) == 1 || line[1] == ':')
}

// obey acts on a command and returns the line to show.
func (o *output) obey(line []byte) []byte {
	c, ok := envfile.ParseCommand(string(line))
	if !ok {
		return line
	}
	o.commands.mu.Lock()
	defer o.commands.mu.Unlock()
	switch {
	case o.commands.until != "":
		if c.Name == lower(o.commands.until) && c.Data == "" {
			o.commands.until = ""
		}
	case c.Name == "stop-commands":
		o.commands.until = c.Data
	case c.Name == "add-mask":
		o.job.mask.Add(c.Data)
		if len(c.Data) < mask.MinLength {
			return line
		}
		return []byte("::add-mask::" + mask.Replacement + "\n")
	}
	return line
}

func lower(s string) string { return string(bytes.ToLower([]byte(s))) }

func (o *output) text(p []byte) {
	if saysFull(p) {
		o.commands.full.Store(true)
	}
	_, _ = o.stream.Write(o.mask.Write(p))
}

// Close writes what was held back and ends the last line.
func (o *output) Close() {
	if len(o.held) > 0 {
		o.text(o.obey(o.held))
		o.held = nil
	}
	_, _ = o.stream.Write(o.mask.Close())
	o.stream.Close()
}
