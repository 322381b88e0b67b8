package container

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// Delete implements backend.Backend: stop with a grace, remove by force with its anonymous volumes, then its rules (CT-23).
func (b *Backend) Delete(ctx context.Context, ref backend.Ref) error {
	if !agentID().MatchString(ref.AgentID) {
		return fmt.Errorf("agent id %q: %w", ref.AgentID, backend.ErrNotFound)
	}
	unlock, err := b.lock(ctx, b.locks, ref.AgentID)
	if err != nil {
		return err
	}
	defer unlock()
	in, ours, err := b.inspect(ctx, ref.AgentID)
	if errors.Is(err, backend.ErrNotFound) || err == nil && !ours {
		volumes, err := b.clear(ctx, ref.AgentID)
		if err != nil {
			return fmt.Errorf("end agent %s: %w", ref.AgentID, err)
		}
		if volumes > 0 {
			return nil
		}
		return fmt.Errorf("agent %s: %w", ref.AgentID, backend.ErrNotFound)
	}
	if err == nil && alive(in.State.Status) {
		err = b.end(ctx, in.ID, ref.Grace)
	}
	if err == nil {
		err = b.remove(ctx, ref.AgentID, in.ID)
	}
	if err != nil {
		return fmt.Errorf("end agent %s: %w", ref.AgentID, err)
	}
	return nil
}

// inspect looks at an agent's container. ours is false for one of somebody else with its name (XS-79). ErrNotFound: there is none.
func (g *engine) inspect(ctx context.Context, agent string) (in container.InspectResponse, ours bool, err error) {
	in, err = g.api.Inspect(ctx, containerName(agent))
	if missing(err) {
		return in, false, backend.ErrNotFound
	}
	if err != nil {
		return in, false, err
	}
	if in.Config == nil || in.State == nil {
		return in, false, nil
	}
	ours = in.Config.Labels[labelAgent] == agent
	for k, v := range ourLabels(g.host, g.scaler) {
		ours = ours && in.Config.Labels[k] == v
	}
	return in, ours, nil
}

// end stops a container. That it has ended already, or is gone, is as good.
func (g *engine) end(ctx context.Context, id string, grace time.Duration) error {
	seconds := defaultGrace
	if grace > 0 {
		seconds = max(1, int(grace.Round(time.Second)/time.Second))
	}
	err := g.api.Stop(ctx, id, seconds)
	if err != nil && !missing(err) && !engineapi.IsStatus(err, http.StatusNotModified) {
		if ctx.Err() != nil {
			return err
		}
		g.log.Warn("stop a container; it is removed by force", "container", id, "err", err)
	}
	return nil
}

// clear removes what an agent has beside its container: volumes and rules. It says how many volumes there were.
func (g *engine) clear(ctx context.Context, agent string) (volumes int, err error) {
	volumes, err = g.removeVolumes(ctx, agent)
	if err = errors.Join(err, g.release(ctx, agent)); err == nil {
		g.forget(agent)
	}
	return volumes, err
}

// removePause is between two looks at a container that somebody else is removing.
const removePause = 50 * time.Millisecond

// remove removes a container by force, and what it had. It returns when nothing is left.
func (g *engine) remove(ctx context.Context, agent, id string) error {
	for {
		err := g.api.Remove(ctx, id)
		switch {
		case err == nil, missing(err):
			_, err := g.clear(ctx, agent)
			return err
		case !engineapi.IsStatus(err, http.StatusConflict):
			return fmt.Errorf("remove container %s: %w", containerName(agent), err)
		}
		timer := time.NewTimer(removePause) // its removal is in progress
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("remove container %s: %w", containerName(agent), context.Cause(ctx))
		}
	}
}
