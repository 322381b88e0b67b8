package container

import (
	"context"
	"fmt"
	"strings"

	"github.com/moby/moby/api/types/system"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Examine implements backend.Examiner: the engine answers, agents can be isolated, and there is room for images.
func (b *Backend) Examine(ctx context.Context) ([]string, error) {
	v, err := b.api.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", b.at, err)
	}
	facts := []string{fmt.Sprintf("%s at %s", engineName(v), strings.TrimPrefix(b.at.URL, "unix://"))}
	if !b.entry.Retiring {
		fact, err := b.examineNetwork(ctx)
		if err != nil {
			return facts, err
		}
		facts = append(facts, fact, "limits by the engine")
	}
	info, err := b.api.Info(ctx)
	if err != nil {
		return facts, fmt.Errorf("%s does not say what it has: %w", b.at, err)
	}
	return append(facts, fmt.Sprintf("%d images", info.Images)), nil
}

// engineName is "Docker 28.1.1" or "Podman 5.4.0".
func engineName(v system.VersionResponse) string {
	for _, c := range v.Components {
		if strings.Contains(c.Name, "Podman") {
			return "Podman " + c.Version
		}
	}
	return "Docker " + v.Version
}

func (b *Backend) examineNetwork(ctx context.Context) (string, error) {
	if !isolated(b.entry) {
		return "agents are not isolated (networkIsolation is off)", nil
	}
	if _, err := b.rules.Check(ctx); err != nil {
		return "", fmt.Errorf("agents cannot be isolated: %w", err)
	}
	return "agents are isolated by nftables", nil
}

var _ backend.Examiner = (*Backend)(nil)
