package container

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// endpoint is where an engine is spoken to.
type endpoint struct {
	URL    string `json:"url"`
	Podman bool   `json:"podman,omitempty"` // as configured; what it really is, the engine says
}

// socket is the path of an engine's socket on this machine, "" for an engine elsewhere.
func (e endpoint) socket() string {
	path, _ := strings.CutPrefix(e.URL, "unix://")
	if path == e.URL {
		return ""
	}
	return path
}

func (e endpoint) local() bool { return e.socket() != "" }

// String names it for people.
func (e endpoint) String() string {
	name := "Docker"
	if e.Podman {
		name = "Podman"
	}
	return name + " at " + strings.TrimPrefix(e.URL, "unix://")
}

// facts are what checks know of the host.
type facts struct {
	goos   string
	getenv func(string) string
	usable func(path string) error // a socket that this process can read and write
}

func realFacts() facts { return facts{goos: runtime.GOOS, getenv: getenv, usable: usable} }

// errNoEngine is XS-75.
var errNoEngine = errors.New("there is no container engine that this user can use: install Docker or Podman and start it (for Podman: systemctl enable --now podman.socket), " +
	"let this user use its socket, or name one with socketPath or host")

// choose finds the engine of an entry (CT-1). The tools of an engine are not needed, only its API; so CT-2 asks for no more than this.
func choose(o backend.Options, f facts) (endpoint, error) {
	kind := o.String(keyRuntime)
	if host := o.String(keyHost); host != "" {
		return endpoint{host, kind == "podman"}, checkHost(host)
	}
	if path := o.String(keySocket); path != "" {
		e := endpoint{"unix://" + path, strings.Contains(path, "podman")}
		if !filepath.IsAbs(path) {
			return e, errors.New("must be an absolute path")
		}
		return e, f.usable(path)
	}
	for _, c := range candidates(f) {
		if (kind == "" || kind == "auto" || (kind == "podman") == c.Podman) && f.usable(c.socket()) == nil {
			return c, nil
		}
	}
	return endpoint{}, errNoEngine
}

func candidates(f facts) []endpoint {
	out := []endpoint{{"unix:///var/run/docker.sock", false}, {"unix:///run/podman/podman.sock", true}}
	if dir := f.getenv("XDG_RUNTIME_DIR"); dir != "" {
		out = append(out, endpoint{"unix://" + filepath.Join(dir, "podman", "podman.sock"), true})
	}
	return out
}

// checkHost reads the address of an engine elsewhere.
func checkHost(host string) error {
	u, err := url.Parse(host)
	if err != nil || !slices.Contains([]string{"tcp", "http", "https"}, u.Scheme) || u.Host == "" {
		return fmt.Errorf("%q is no address of an engine: write tcp://host:port; for a socket of this machine use socketPath", host)
	}
	return nil
}
