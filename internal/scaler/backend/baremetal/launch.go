package baremetal

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// launch is how an agent is started. It is computed without starting anything (BM-6).
type launch struct {
	path string
	args []string // with the program's name
	env  []string // sorted
	dir  string
	line string // the exact command line on Windows, where a batch file needs one; '' = of args
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
	box     *confinement
}

// tokenFD is where an agent finds its token (D13): the first inherited descriptor after the standard ones. Windows has no numbers for
// them; the handle's takes its place at the start.
const (
	tokenFD       = "3"
	tokenVariable = "KICI_AGENT_TOKEN_FD"
)

func plan(in launchInput) launch {
	l := launch{path: in.binary, args: []string{in.binary, "agent"}, env: environment(in), dir: in.workDir}
	if in.goos == "windows" && isBatch(in.binary) {
		l.path = cmdExe(in.environ)
		l.line = batchLine(l.path, in.binary, "agent")
	}
	return l
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
	"KICI_AGENT_TOKEN": true, tokenVariable: true, "KICI_AGENT_TOKEN_FILE": true, "KICI_ORCHESTRATOR_URL": true,
	"KICI_AGENT_ID": true, "KICI_LABELS": true, "KICI_SCALER_MANAGED": true, "KICI_EXECUTION_MODE": true,
	"KICI_WORK_DIR": true, "KICI_AGENT_DIR": true, "KICI_AGENT_MARK": true, "KICI_MIN_FREE_DISK_BYTES": true,
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

// environ is an environment that is being put together. Windows does not tell names apart by case: the first spelling stays.
type environ struct {
	fold   bool
	names  map[string]string // as they are spelled, by key
	values map[string]string // by key
}

func newEnviron(goos string) *environ {
	return &environ{fold: goos == "windows", names: map[string]string{}, values: map[string]string{}}
}

func (e *environ) key(name string) string {
	if e.fold {
		return strings.ToUpper(name)
	}
	return name
}

func (e *environ) set(name, value string) {
	k := e.key(name)
	if _, ok := e.names[k]; !ok {
		e.names[k] = name
	}
	e.values[k] = value
}

func (e *environ) get(name string) (string, bool) { v, ok := e.values[e.key(name)]; return v, ok }

func (e *environ) drop(name string) { delete(e.values, e.key(name)) }

// list is sorted.
func (e *environ) list() []string {
	out := make([]string, 0, len(e.values))
	for k, value := range e.values {
		out = append(out, e.names[k]+"="+value)
	}
	slices.Sort(out)
	return out
}

// environment builds the layers of BM-5; later ones win, except over identity.
func environment(in launchInput) []string {
	host, forwarded, env := newEnviron(in.goos), newEnviron(in.goos), newEnviron(in.goos)
	for _, kv := range in.environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		host.set(name, value)
		if short, ok := strings.CutPrefix(name, forwardPrefix); ok && short != "" {
			forwarded.set(short, value)
		}
	}
	set := newEnviron(in.goos)
	for name, value := range in.setEnv {
		set.set(name, value)
	}
	env.inherit(host, trusts(forwarded) || trusts(set))
	if u := in.user; u != nil {
		env.set("HOME", u.home)
		env.set("USER", u.name)
		env.set("LOGNAME", u.name)
		env.drop("SHELL")
		env.drop("TMPDIR")
	}
	for _, layer := range []*environ{forwarded, set} {
		for k, value := range layer.values {
			env.set(layer.names[k], value)
		}
	}
	env.drop(trustedName)
	for name := range ownNames {
		env.drop(name)
	}
	env.identify(in)
	return env.list()
}

func trusts(e *environ) bool { v, _ := e.get(trustedName); return v == "true" }

// inherit takes from the server's environment what agents may have: everything but what is kici's when they are trusted, because the
// server's own settings and secrets have those names.
func (e *environ) inherit(host *environ, trusted bool) {
	if trusted {
		for k, value := range host.values {
			if !strings.HasPrefix(k, "KICI_") {
				e.set(host.names[k], value)
			}
		}
		return
	}
	names := inherited
	if e.fold {
		names = slices.Concat(inherited, inheritedWindows)
	}
	for _, name := range names {
		if value, ok := host.get(name); ok {
			e.set(host.names[host.key(name)], value)
		}
	}
}

// identify sets who the agent is.
func (e *environ) identify(in launchInput) {
	e.set("KICI_ORCHESTRATOR_URL", in.spec.URL)
	e.set("KICI_AGENT_ID", in.spec.AgentID)
	e.set("KICI_LABELS", strings.Join(in.spec.Labels, ","))
	e.set("KICI_SCALER_MANAGED", "1")
	e.set("KICI_EXECUTION_MODE", Type)
	e.set("KICI_WORK_DIR", in.workDir)
	e.set(tokenVariable, tokenFD)
	e.set(markName, in.spec.AgentID)
	if n := in.spec.MinFreeDisk; n > 0 {
		e.set("KICI_MIN_FREE_DISK_BYTES", strconv.FormatInt(n, 10))
	}
	in.box.describe(e)
	if in.mode != "" {
		e.set("KICI_BACKPRESSURE_MODE", in.mode)
	}
}
