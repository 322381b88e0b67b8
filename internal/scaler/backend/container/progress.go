package container

import (
	"context"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/moby/moby/api/types/jsonstream"
)

// pullProgress is how far a pull is, as the engine tells it layer by layer.
type pullProgress struct {
	layers map[string]layer
}

type layer struct {
	done, total int64 // total is 0 while it is not known
	ended       bool
}

// maxLayers is more than any image has: what a registry says is not kept without end.
const maxLayers = 1000

// note takes up a message of the engine. Docker tells of unpacking in the same way as of downloading, only with its own numbers.
func (p *pullProgress) note(m jsonstream.Message) {
	status := strings.ToLower(m.Status)
	l, known := p.layers[m.ID]
	if m.ID == "" || !known && len(p.layers) >= maxLayers {
		return
	}
	switch {
	case strings.HasPrefix(status, "downloading") && m.Progress != nil:
		l.done, l.total = max(l.done, m.Progress.Current), max(l.total, m.Progress.Total)
	case strings.HasPrefix(status, "download complete"), strings.HasPrefix(status, "pull complete"):
		l.done, l.ended = l.total, true
	case strings.HasPrefix(status, "pulling fs layer"), strings.HasPrefix(status, "waiting"):
	default:
		return // it is there already, or none of a layer
	}
	if p.layers == nil {
		p.layers = map[string]layer{}
	}
	p.layers[m.ID] = l
}

// String is "120 MB of 300 MB", "120 MB of at least 300 MB" while there are layers of unknown size, "unpacking 300 MB" when all is here, ""
// while nothing is known.
func (p *pullProgress) String() string {
	var done, total int64
	unknown := false
	for _, l := range p.layers {
		done, total = done+max(l.done, 0), total+max(l.total, 0)
		unknown = unknown || l.total <= 0 && !l.ended
	}
	size := func(n int64) string { return humanize.Bytes(uint64(n)) }
	switch {
	case total == 0 && done == 0:
		return ""
	case total < done: // an engine that tells no totals
		return size(done)
	case unknown:
		return size(done) + " of at least " + size(total)
	case done == total:
		return "unpacking " + size(total)
	}
	return size(done) + " of " + size(total)
}

// ongoing is a pull that is under way, for all who wait for its image.
type ongoing struct {
	ref  string
	how  pullProgress
	told string // what of it was told last
}

func (p *ongoing) text() string {
	if p.told == "" {
		return "pulling " + p.ref
	}
	return "pulling " + p.ref + ": " + p.told
}

// tellEvery is how often those who wait for a pull hear of it.
const tellEvery = time.Second

// follow tells a launch how far the pull of its image is, which may be another's, until stop.
func (g *engine) follow(ctx context.Context, w wanted) (stop func()) {
	if w.progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(tellEvery)
		defer ticker.Stop()
		for told := ""; ; {
			if text := g.pullText(w.ref); text != told {
				told = text
				w.progress(text)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return func() { cancel(); <-done }
}

// pullText is how far the pull of an image is, "" when there is none.
func (g *engine) pullText(ref string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.pulled[ref]; p != nil {
		return p.text()
	}
	return ""
}

// notePull takes up what the engine says of a pull.
func (g *engine) notePull(p *ongoing, m jsonstream.Message) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.how.note(m)
	p.told = p.how.String()
	return p.told
}

// begin makes a pull known, until end.
func (g *engine) begin(ref string) (p *ongoing, end func()) {
	p = &ongoing{ref: ref}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pulled[ref] = p
	return p, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.pulled, ref)
	}
}
