package baremetal

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// The agent itself makes the sandbox of its steps (agent/sandbox). What it needs to know stands in its environment.
const (
	sandboxName    = "KICI_SANDBOX"
	sandboxNetwork = "KICI_SANDBOX_NETWORK"
	sandboxPaths   = "KICI_SANDBOX_PATHS"
	sandboxHidden  = "KICI_SANDBOX_HIDDEN"
)

// confinement is the sandbox of a scaler's agents; nil for none.
type confinement struct {
	network string
	paths   []string
	hidden  string // the server's data directory
}

// confinementOf says how the agents of a label set are confined: by the scaler's keys, or by the set's env alone (BM-4).
func confinementOf(e backend.Entry, set backend.Set, dataDir string) *confinement {
	byEnv := truthy(set.Env[sandboxName])
	if !e.Options.Bool(keySandbox) && !byEnv {
		return nil
	}
	c := &confinement{network: e.Options.String(keyNetwork), paths: e.Options.Strings(keyPaths), hidden: dataDir}
	if byEnv && c.network == "" {
		c.network = set.Env[sandboxNetwork]
	}
	if c.network == "" {
		c.network = ci.NetworkIsolated
	}
	return c
}

// truthy is how agents read a flag.
func truthy(v string) bool { return v == "1" || strings.EqualFold(v, "true") }

// confines reports whether any of an entry's agents are in a sandbox.
func confines(e backend.Entry) bool {
	return e.Options.Bool(keySandbox) || slices.ContainsFunc(e.Sets, func(s backend.Set) bool { return truthy(s.Env[sandboxName]) })
}

// describe puts it into an agent's environment, where no label set can loosen it.
func (c *confinement) describe(e *environ) {
	if c == nil {
		return
	}
	e.set(sandboxName, "1")
	e.set(sandboxNetwork, c.network)
	e.set(sandboxHidden, c.hidden)
	e.drop(sandboxPaths)
	if len(c.paths) > 0 {
		e.set(sandboxPaths, strings.Join(c.paths, ","))
	}
}

// checkSandbox finds what is wrong with the sandbox of an entry.
func checkSandbox(e backend.Entry, f facts) (out []backend.Fault) {
	fault := func(key, cure, format string, args ...any) {
		out = append(out, backend.Fault{Key: key, Message: fmt.Sprintf(format, args...), Cure: cure})
	}
	if !confines(e) {
		for _, key := range []string{keyNetwork, keyPaths} {
			if _, set := e.Options[key]; set {
				out = append(out, backend.Fault{Key: key, Warning: true, Message: "does nothing without sandbox"})
			}
		}
		return out
	}
	if f.goos != "linux" {
		fault(keySandbox, "remove it", "there is no sandbox on this system, only on Linux")
	}
	if user, err := identity(e, f); err == nil && (user == nil && f.uid == 0 || user != nil && user.uid == 0) {
		fault(keySandbox, "set runAs to a user without rights", "jobs would run as root, and a sandbox around root holds little")
	}
	if n := e.Options.String(keyNetwork); n != "" && n != ci.NetworkIsolated && n != ci.NetworkHost {
		fault(keyNetwork, "write isolated or host", "%q is no network of a sandbox", n)
	}
	for _, p := range e.Options.Strings(keyPaths) {
		plain := strings.TrimSuffix(strings.TrimSuffix(p, ":rw"), ":ro")
		if !path.IsAbs(plain) || strings.ContainsAny(plain, ",:") { // of Linux, wherever this is asked
			fault(keyPaths, "write PATH or PATH:rw", "%q is no absolute path without commas and colons", p)
		} else if _, err := f.stat(plain); err != nil {
			fault(keyPaths, "", "%v", err)
		}
	}
	return out
}
