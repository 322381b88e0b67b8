package container

import (
	"context"
	"time"

	"github.com/moby/moby/client"
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
	ctx, cancel := context.WithCancel(ctx)
	filters := client.Filters{}
	filters.Add("type", "container").Add("event", "die", "died", "destroy", "remove").Add("label", labelManaged+"=true", labelScaler+"="+g.scaler)
	stream := g.api.Events(ctx, client.EventsListOptions{Filters: filters})
	defer func() { // the reader must not stay behind
		cancel()
		for range stream.Err {
		}
	}()
	g.hint("")
	for {
		select {
		case err := <-stream.Err:
			return err
		case m := <-stream.Messages:
			if of := m.Actor.Attributes; of[labelInstance] == g.host.NodeID {
				g.hint(of[labelAgent])
			}
		}
	}
}

// hint says that an agent may have ended, "" any.
func (g *engine) hint(agent string) {
	select {
	case g.exits <- agent:
	default: // only a hint, and the reader is behind anyway
	}
}
