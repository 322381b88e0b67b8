package baremetal

import (
	"maps"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// launch is how an agent is started. It is computed without starting anything (BM-6).
type launch struct {
	path string
	args []string // with the program's name
	env  []string // sorted
	dir  string
}

// launchInput is everything a launch depends on.
type launchInput struct {
	binary  string
	spec    backend.Spec
	setEnv  map[string]string
	mode    string // backpressureMode
	environ []string
	goos    string
	workDir string
	user    *account
}

// tokenFD is where an agent finds its token (D13): the first inherited descriptor after the standard ones.
const tokenFD = "3"

func plan(in launchInput) launch {
	return launch{path: in.binary, args: []string{in.binary, "agent"}, env: environment(in), dir: in.workDir}
}

// Variables that every agent may inherit (BM-5).
var (
	inherited        = []string{"PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "TERM", "TMPDIR", "NODE_PATH", "TZ"}
	inheritedWindows = []string{
		"PATHEXT", "SystemRoot", "windir", "COMSPEC", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA", "APPDATA",
		"PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS",
	}
)

// ownNames are an agent's identity and its ways home: no label set may change them.
var ownNames = map[string]bool{
	"KICI_AGENT_TOKEN": true, "KICI_AGENT_TOKEN_FD": true, "KICI_AGENT_TOKEN_FILE": true, "KICI_ORCHESTRATOR_URL": true,
	"KICI_AGENT_ID": true, "KICI_LABELS": true, "KICI_SCALER_MANAGED": true, "KICI_EXECUTION_MODE": true,
	"KICI_WORK_DIR": true, "KICI_AGENT_DIR": true, "KICI_AGENT_MARK": true,
}

const (
	forwardPrefix = "KICI_AGENT_ENV_"
	trustedName   = "KICI_TRUSTED_ENV"
	markName      = "KICI_AGENT_MARK" // handed on to steps, so that what an agent leaves behind can be found
)

// lookup finds a variable of an environment, ” when it is not there.
func lookup(environ []string, name string) string {
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// environment builds the layers of BM-5; later ones win, except over identity.
func environment(in launchInput) []string {
	host := map[string]string{}
	forwarded := map[string]string{}
	for _, kv := range in.environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		host[name] = value
		if short, ok := strings.CutPrefix(name, forwardPrefix); ok && short != "" {
			forwarded[short] = value
		}
	}
	env := map[string]string{}
	if forwarded[trustedName] == "true" || in.setEnv[trustedName] == "true" {
		// Everything but what is kici's: the server's own settings and secrets have these names.
		for name, value := range host {
			if !strings.HasPrefix(name, "KICI_") {
				env[name] = value
			}
		}
	} else {
		names := inherited
		if in.goos == "windows" {
			names = slices.Concat(inherited, inheritedWindows)
		}
		for _, name := range names {
			if v, ok := host[name]; ok {
				env[name] = v
			}
		}
	}
	if u := in.user; u != nil {
		env["HOME"], env["USER"], env["LOGNAME"] = u.home, u.name, u.name
		delete(env, "SHELL")
		delete(env, "TMPDIR")
	}
	maps.Copy(env, forwarded)
	maps.Copy(env, in.setEnv)
	delete(env, trustedName)
	for name := range ownNames {
		delete(env, name)
	}
	env["KICI_ORCHESTRATOR_URL"] = in.spec.URL
	env["KICI_AGENT_ID"] = in.spec.AgentID
	env["KICI_LABELS"] = strings.Join(in.spec.Labels, ",")
	env["KICI_SCALER_MANAGED"] = "1"
	env["KICI_EXECUTION_MODE"] = Type
	env["KICI_WORK_DIR"] = in.workDir
	env["KICI_AGENT_TOKEN_FD"] = tokenFD
	env[markName] = in.spec.AgentID
	if in.mode != "" {
		env["KICI_BACKPRESSURE_MODE"] = in.mode
	}
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}
