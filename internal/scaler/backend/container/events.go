package container

import (
	"context"
	"time"

	"github.com/moby/moby/api/types/events"

	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// Pauses between two attempts to listen to an engine that is not there.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// watch listens to the engine for ends of our containers until ctx ends. They are only hints: List says what is so.
func (g *engine) watch(ctx context.Context) {
	defer close(g.stopped)
	for pause := firstPause; ; {
		began := time.Now()
		err := g.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause {
			pause = firstPause
			g.log.Info("the container engine has gone; listening again", "err", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, maxPause)
	}
}

// listen hears one stream of events to its end. What ended before it began is found by a look, which the first hint asks for.
func (g *engine) listen(ctx context.Context) error {
	filters := engineapi.Filters{
		"type": {"container"}, "event": {"die", "died", "destroy", "remove"}, "label": {labelManaged + "=true", labelScaler + "=" + g.scaler},
	}
	return g.api.Events(ctx, filters, func() { g.hint("") }, func(m events.Message) {
		if of := m.Actor.Attributes; of[labelInstance] == g.host.NodeID {
			g.hint(of[labelAgent])
			for _, later := range echoes {
				time.AfterFunc(later, func() { g.hint(of[labelAgent]) })
			}
		}
	})
}

// echoes are when a hint is given again: Docker tells of an end before it has cleaned up, and until then lists the container as running.
var echoes = []time.Duration{300 * time.Millisecond, 2 * time.Second}

// hint says that an agent may have ended, "" any.
func (g *engine) hint(agent string) {
	select {
	case g.exits <- agent:
	default: // only a hint, and the reader is behind anyway
	}
}
