package git

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// progressEvery is how often a long fetch says how far it is.
const progressEvery = 5 * time.Second

// progress passes git's standard error on, line by line, with at most one line of progress in progressEvery (none in the first)
// and without the list of what was fetched. A server may repeat the credential: scrub takes it out of each line.
type progress struct {
	to    io.Writer
	now   func() time.Time
	scrub func(string) string
	last  time.Time
	buf   []byte
}

func newProgress(to io.Writer, now func() time.Time, scrub func(string) string) *progress {
	return &progress{to: to, now: now, scrub: scrub, last: now()}
}

const maxProgressLine = 64 << 10

// Write implements io.Writer; it takes everything.
func (p *progress) Write(b []byte) (int, error) {
	p.buf = append(p.buf, b...)
	for {
		i := bytes.IndexAny(p.buf, "\r\n")
		if i < 0 && len(p.buf) > maxProgressLine {
			i = len(p.buf) - 1
		}
		if i < 0 {
			return len(b), nil
		}
		p.line(string(p.buf[:i]))
		p.buf = p.buf[i+1:]
	}
}

// Flush passes on a last line without its end.
func (p *progress) Flush() {
	p.line(string(p.buf))
	p.buf = nil
}

func (p *progress) line(s string) {
	s = strings.TrimRight(s, " ")
	switch {
	case s == "" || strings.HasPrefix(s, "From ") || strings.HasPrefix(s, " "):
		return
	case isProgress(s):
		if p.now().Sub(p.last) < progressEvery {
			return
		}
		p.last = p.now()
	}
	_, _ = io.WriteString(p.to, p.scrub(s)+"\n")
}

var progressPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(remote: )?[A-Z][a-z]+( [a-z]+)?: +\d+(%|, done|$)|^remote: Total \d`)
})

// isProgress: "Receiving objects:  45% (…)", "remote: Enumerating objects: 12, done."
func isProgress(line string) bool { return progressPattern().MatchString(line) }
