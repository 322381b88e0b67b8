package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/mount"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// The volumes that an image asks for (VOLUME) get names and labels of ours: those that an engine makes by itself have neither, and stay for
// ever when somebody removes their container without them.

// maxVolumes is more than any image asks for.
const maxVolumes = 64

// volumesOf are the folders for which an image wants volumes, without those that a label set mounts itself.
func volumesOf(img image.InspectResponse, set backend.Set) []string {
	if img.Config == nil {
		return nil
	}
	taken := map[string]bool{}
	for _, v := range set.Options.Strings(keyVolumes) {
		if parts := strings.Split(v, ":"); len(parts) > 1 {
			taken[path.Clean(parts[1])] = true
		}
	}
	var out []string
	for _, target := range slices.Sorted(maps.Keys(img.Config.Volumes)) {
		clean := path.Clean(target)
		ours := clean == ownFolder || strings.HasPrefix(clean, ownFolder+"/")
		if path.IsAbs(clean) && clean != "/" && !ours && !taken[clean] && len(out) < maxVolumes {
			out = append(out, clean)
		}
	}
	return out
}

// volumeName is the i-th volume of an agent.
func volumeName(agent string, i int) string { return containerName(agent) + "-" + strconv.Itoa(i) }

// makeVolumes makes an agent's volumes, and leaves those that are there.
func (g *engine) makeVolumes(ctx context.Context, agent string, n int) error {
	labels := ourLabels(g.host, g.scaler)
	labels[labelAgent] = agent
	for i := range n {
		if err := g.api.CreateVolume(ctx, engineapi.Volume{Name: volumeName(agent, i), Labels: labels}); err != nil {
			return fmt.Errorf("make a volume: %w", err)
		}
	}
	return nil
}

// volumeMounts are the mounts of an agent's volumes.
func volumeMounts(agent string, targets []string) (out []mount.Mount) {
	for i, target := range targets {
		out = append(out, mount.Mount{Type: mount.TypeVolume, Source: volumeName(agent, i), Target: target})
	}
	return out
}

// volumes lists this scaler's volumes by agent; with an agent only that one's.
func (g *engine) volumes(ctx context.Context, agent string) (map[string][]string, error) {
	want := ourLabels(g.host, g.scaler)
	if agent != "" {
		want[labelAgent] = agent
	}
	var labels []string
	for k, v := range want {
		labels = append(labels, k+"="+v)
	}
	all, err := g.api.Volumes(ctx, engineapi.Filters{"label": labels})
	if err != nil {
		return nil, fmt.Errorf("list volumes of %s: %w", g.at, err)
	}
	out := map[string][]string{}
	for _, v := range all {
		whose := v.Labels[labelAgent]
		for name, value := range want {
			if v.Labels[name] != value {
				whose = ""
			}
		}
		if agentID().MatchString(whose) && strings.HasPrefix(v.Name, containerName(whose)+"-") {
			out[whose] = append(out[whose], v.Name)
		}
	}
	return out, nil
}

// removeVolumes removes an agent's volumes, and says how many there were.
func (g *engine) removeVolumes(ctx context.Context, agent string) (int, error) {
	all, err := g.volumes(ctx, agent)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, name := range all[agent] {
		if err := g.api.RemoveVolume(ctx, name); err != nil && !engineapi.IsStatus(err, http.StatusNotFound) {
			errs = append(errs, fmt.Errorf("remove volume %s: %w", name, err))
		}
	}
	return len(all[agent]), errors.Join(errs...)
}
