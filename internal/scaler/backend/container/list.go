package container

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/wire"
)

// States of a container beyond those that the API names: Podman has more.
const (
	stateCreated  = container.StateCreated
	stateStopping = container.ContainerState("stopping")
)

// alive reports whether a container's processes run. A paused one lives.
func alive(s container.ContainerState) bool {
	return s == container.StateRunning || s == container.StatePaused || s == container.StateRestarting || s == stateStopping
}

// List implements backend.Backend. It also makes the network rules of what it finds true again, should somebody have flushed them.
func (b *Backend) List(ctx context.Context) ([]backend.Instance, error) {
	items, err := b.survey(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := b.volumes(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []backend.Instance
	for _, c := range items {
		agent := c.Labels[labelAgent]
		if !named(c) {
			continue // somebody has copied our labels; it is not ours to end
		}
		inst := b.running(agent, c.ID)
		if !alive(c.State) {
			if inst, err = b.dead(ctx, agent, c); errors.Is(err, backend.ErrNotFound) {
				continue // it went meanwhile
			}
			if err != nil {
				return nil, err
			}
		}
		inst.Holds = append(inst.Holds, holdVolumes(volumes[agent])...)
		delete(volumes, agent)
		out = append(out, inst)
	}
	for _, agent := range slices.Sorted(maps.Keys(volumes)) { // their containers were removed by somebody else, or never made
		out = append(out, backend.Instance{
			AgentID: agent, Launch: record{Container: containerName(agent)}.encode(), Unstarted: true, Detail: "volumes without a container",
			Holds: holdVolumes(volumes[agent]),
		})
	}
	return out, nil
}

// named reports whether a container has the name that goes with its labels.
func named(c container.Summary) bool {
	agent := c.Labels[labelAgent]
	return agentID().MatchString(agent) && len(c.Names) > 0 && strings.TrimPrefix(c.Names[0], "/") == containerName(agent)
}

func holdVolumes(names []string) []backend.Resource {
	return slices.Repeat([]backend.Resource{backend.Volume}, len(names))
}

// ours lists this scaler's containers, with those that do not run.
func (g *engine) ours(ctx context.Context) ([]container.Summary, error) {
	var labels []string
	for k, v := range ourLabels(g.host, g.scaler) {
		labels = append(labels, k+"="+v)
	}
	items, err := g.api.List(ctx, engineapi.Filters{"label": labels})
	if err != nil {
		return nil, fmt.Errorf("list containers of %s: %w", g.at, err)
	}
	return items, nil
}

// dead says how a container ended.
func (b *Backend) dead(ctx context.Context, agent string, c container.Summary) (backend.Instance, error) {
	id := c.ID
	if c.State == stateCreated { // no more is known, and to ask would wait for as long as its start takes, with everything else of the node
		inst := b.running(agent, id)
		inst.Running, inst.Unstarted, inst.Detail = false, true, neverStarted
		return inst, nil
	}
	in, err := b.api.Inspect(ctx, id)
	if missing(err) {
		return backend.Instance{}, backend.ErrNotFound
	}
	if err != nil {
		return backend.Instance{}, fmt.Errorf("look at container %s: %w", containerName(agent), err)
	}
	inst := b.running(agent, id)
	if in.State == nil || alive(in.State.Status) { // it was starting
		return inst, nil
	}
	inst.Running, inst.Detail = false, b.fate(in)
	inst.Unstarted = unstarted(in.State)
	if !inst.Unstarted {
		inst.Tail = b.tail(ctx, id)
	}
	return inst, nil
}

// unstarted reports whether an agent never got its token, so that it has done nothing.
func unstarted(s *container.State) bool {
	switch s.Status {
	case stateCreated, "configured", "initialized":
		return true
	case container.StateExited, "stopped":
		return s.ExitCode == wire.ExitNoToken
	}
	return false
}

const neverStarted = "the container was never started"

// fate says for people how a container ended.
func (g *engine) fate(in container.InspectResponse) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fate(in, g.podman)
}

// fate is engine.fate. Docker knows of every process that was killed for want of memory, Podman does not.
func fate(in container.InspectResponse, podman bool) string {
	s := in.State
	limit := int64(0)
	if in.HostConfig != nil {
		limit = in.HostConfig.Memory
	}
	const killed = 128 + 9 // SIGKILL
	switch {
	case s.OOMKilled:
		return "killed: out of memory" + limitText(limit)
	case s.ExitCode == killed && limit > 0 && podman:
		return "killed by SIGKILL" + limitText(limit) + "; out of memory, perhaps: this engine does not say"
	case s.ExitCode > 128 && s.ExitCode < 128+65:
		return "killed by " + signalName(s.ExitCode-128)
	case s.Error != "":
		return s.Error
	case s.Status == stateCreated:
		return neverStarted
	}
	return "exited with " + strconv.Itoa(s.ExitCode)
}

// signalName names the signals by which programs usually end. The numbers are Linux's, wherever this runs.
func signalName(n int) string {
	names := map[int]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM"}
	return cmp.Or(names[n], "signal "+strconv.Itoa(n))
}

func limitText(limit int64) string {
	if limit == 0 {
		return ""
	}
	return " (limit " + humanize.IBytes(uint64(limit)) + ")"
}

// Bounds of the last words.
const (
	maxTailLines = 50
	maxTailBytes = 64 << 10
	tailTimeout  = 3 * time.Second
)

// tail returns the last lines of an agent's output, as the engine kept it (CT-21). Failing to get it is no failure.
func (g *engine) tail(ctx context.Context, id string) []string {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	logs, err := g.api.Logs(ctx, id, maxTailLines)
	if err != nil {
		g.log.Debug("read a dead agent's output", "container", id, "err", err)
		return nil
	}
	defer logs.Close()
	var text bytes.Buffer
	_, _ = stdcopy.StdCopy(&text, &text, io.LimitReader(logs, maxTailBytes)) // what was read counts
	return lastLines(text.String())
}

func lastLines(text string) []string {
	text = strings.TrimRight(strings.ToValidUTF8(text, "�"), "\n")
	if strings.TrimSpace(text) == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-maxTailLines):]
}
