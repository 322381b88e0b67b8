package link

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/internal/wire"
)

// socketHost stands for the orchestrator's name where it is reached by a socket of the file system.
const socketHost = "kici.invalid"

// Socket returns the path in a unix:///path URL, "" for every other URL.
func Socket(raw string) string {
	if path, ok := strings.CutPrefix(strings.TrimSpace(raw), "unix://"); ok {
		return path
	}
	return ""
}

// BaseURL turns any accepted form of KICI_ORCHESTRATOR_URL into the http(s) address without /ws (D20).
func BaseURL(raw string) (string, error) {
	if path := Socket(raw); path != "" {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("orchestrator URL %q must name an absolute path, such as unix:///run/kici.sock", raw)
		}
		return "http://" + socketHost, nil
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return "", fmt.Errorf("orchestrator URL: %w", err)
	}
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	case "http", "https":
	default:
		return "", fmt.Errorf("orchestrator URL %q must begin with http://, https://, ws://, wss:// or unix://", raw)
	}
	if u.Host == "" {
		return "", fmt.Errorf("orchestrator URL %q has no host", raw)
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), wire.PathSocket)
	return strings.TrimSuffix(u.String(), "/"), nil
}
