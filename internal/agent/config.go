package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/agent/job"
	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/agent/workdir"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
)

// Config is everything an agent needs to know. ConfigFromEnv fills it from the environment (AG-1, D20); flags go over it.
type Config struct {
	URL       string // KICI_ORCHESTRATOR_URL, with or without /ws, or unix:///path of a socket
	Token     string // KICI_AGENT_TOKEN: only for agents started by hand; the process starts itself again without it (D13)
	TokenFile string // KICI_AGENT_TOKEN_FILE; a managed agent removes it after its registration
	TokenFD   int    // KICI_AGENT_TOKEN_FD: an inherited file descriptor; 0 for none
	// TokenStdin is KICI_AGENT_TOKEN_FD=0: the token comes on the standard input when the agent may begin, in containers.
	TokenStdin bool

	AgentID    string // KICI_AGENT_ID
	Labels     []string
	Properties map[string]string
	Managed    bool         // KICI_SCALER_MANAGED: run one job, then leave
	JobImage   bool         // KICI_JOB_IMAGE_AGENT: it was started in its job's own image (CT-11)
	Sandbox    *job.Sandbox // KICI_SANDBOX: what steps may see of this machine; nil: everything
	WorkDir    string       // KICI_WORK_DIR; "" is a directory of the agent's own below the system's temporary one
	Version    string

	IdleTimeout     time.Duration // KICI_SCALER_IDLE_TIMEOUT
	PendingTimeout  time.Duration // KICI_SCALER_PENDING_DISPATCH_TIMEOUT: instead, while a job is bound to the agent
	JobHeartbeat    time.Duration // KICI_JOB_HEARTBEAT_INTERVAL_MS
	StepTimeout     time.Duration // KICI_DEFAULT_STEP_TIMEOUT_MS
	ReconnectWindow time.Duration // KICI_RECONNECT_WINDOW_MS: how long an agent without work waits for its orchestrator; 0 for ever
	MaxLogBytes     int64         // KICI_MAX_LOG_SIZE_BYTES, of one job
	MinFreeDisk     int64         // KICI_MIN_FREE_DISK_BYTES: below it a job is warned about its disk; 0 for never

	Environ    []string // what steps inherit from the machine
	Executable string   // what "kici" is inside a step; "" is this program

	// Process says that this process is the agent and nothing else: it protects itself, adopts orphans and gives memory
	// back. False for agents inside another program, as in tests.
	Process bool
	Signals <-chan os.Signal // nil: the process's own, when Process is set
	HTTP    *http.Client     // nil: a client of the agent's own
	Now     func() time.Time // nil: the clock
	Log     *slog.Logger     // nil: the default logger

	Rand    func(n int64) int64        // for jitter, see service.Env; nil is the global source
	Perform func(job.Config) Performer // runs a job; nil is job.New, simulation has none of the processes that it starts (D25)

	termPatience time.Duration // AG-23: how long SIGTERM waits for the job; 0 is the default
}

// Performer is one job that an agent runs, as job.Job does.
type Performer interface {
	// Run returns when nothing of the job runs any more and its log is complete in the spool.
	Run() job.Outcome
	// Cancel stops the job as job.Cancel does; it may come before Run, and again to force.
	Cancel(force bool, grace time.Duration)
	// Abort ends everything at once.
	Abort(why error)
}

// Defaults (AG-1, D17).
const (
	defaultIdle            = 5 * time.Second
	defaultPending         = 60 * time.Second
	defaultJobHeartbeat    = 60 * time.Second
	defaultReconnectWindow = 60 * time.Second // of managed agents
	defaultTermPatience    = 10 * time.Second
	defaultMinFreeDisk     = 256 << 20
)

// known are the names an agent may find in its environment: its own, those of AG-1 that belong to parts which are not
// here yet or have gone (D20: agents open no port), and what kici sets for steps, because an agent may run in one.
var known = []string{
	"KICI_ORCHESTRATOR_URL", "KICI_AGENT_ID", "KICI_LABELS", "KICI_PROPERTIES", "KICI_ROLES", "KICI_PORT", "KICI_AGENT_TOKEN",
	"KICI_AGENT_TOKEN_FILE", "KICI_AGENT_TOKEN_FD", "KICI_CLAIM_CODE", "KICI_SCALER_MANAGED", "KICI_SCALER_IDLE_TIMEOUT",
	"KICI_SCALER_PENDING_DISPATCH_TIMEOUT", "KICI_EXECUTION_MODE", "KICI_BACKPRESSURE_MODE", "KICI_JOB_HEARTBEAT_INTERVAL_MS",
	"KICI_SANDBOX", "KICI_SANDBOX_NETWORK", "KICI_SANDBOX_PATHS", "KICI_SANDBOX_HIDDEN", "KICI_MAX_LOG_SIZE_BYTES", "KICI_MIN_FREE_DISK_BYTES", "KICI_DEFAULT_STEP_TIMEOUT_MS",
	"KICI_CONCURRENCY_WAIT_TIMEOUT_MS", "KICI_RUNTIME_IMAGE", "KICI_JOB_IMAGE_AGENT", "KICI_WORK_DIR", "KICI_RECONNECT_WINDOW_MS",
	"KICI_LOG_LEVEL", "KICI_LOG_FORMAT", "KICI_TRUSTED_ENV", "KICI_AGENT_DIR", markName,

	// Of the command line client, whose user may start an agent.
	"KICI_URL", "KICI_TOKEN", "KICI_ADMIN_URL", "KICI_ADMIN_TOKEN", "KICI_OUTPUT_FORMAT", "KICI_ORG",

	"KICI_RUN_ID", "KICI_JOB_ID", "KICI_STEP", "KICI_TEMP", "KICI_WORKSPACE", "KICI_EVENT_PATH", "KICI_OUTPUT", "KICI_ENV",
	"KICI_PATH", "KICI_SUMMARY", "KICI_SHA", "KICI_REF", "KICI_REF_NAME", "KICI_REF_TYPE", "KICI_REPOSITORY",
	"KICI_REPOSITORY_OWNER", "KICI_EVENT_NAME", "KICI_ACTOR", "KICI_TRIGGERING_ACTOR", "KICI_RUN_NUMBER", "KICI_RUN_ATTEMPT",
	"KICI_WORKFLOW", "KICI_JOB", "KICI_BASE_REF", "KICI_HEAD_REF", "KICI_SERVER_URL", "KICI_STEP_SUMMARY", "KICI_STATE", "KICI_ACTION",
	stepcall.SocketVariable, stepcall.TokenVariable,
}

// foreign are the server's names: whoever runs a server may start an agent in the same shell.
var foreign = []string{
	"KICI_DATA_DIR", "KICI_STORAGE_DIR", "KICI_DATABASE_URL", "KICI_HOST", "KICI_BASE_PATH", "KICI_PUBLIC_URL", "KICI_ON_STOP", "KICI_ROLE", "KICI_SCALER_CONFIG_PATH",
	"KICI_SCALER_CONFIG_DIR", "KICI_MACHINE_LEDGER_DIR", "KICI_SECRET_KEY", "KICI_BOOTSTRAP_ADMIN_TOKEN", "KICI_RUN_AS", "KICI_ALLOW_ROOT", "KICI_TRUSTED_PROXIES", "KICI_CLUSTER_NAME",
	"KICI_QUEUE_TIMEOUT_MS", "KICI_QUEUE_MAX_DEPTH", "KICI_DISPATCH_ACK_TIMEOUT_MS", "KICI_RECOVERY_GRACE_MS", "KICI_UNROUTABLE_GRACE_MS",
	"KICI_JOB_STALE_MS", "KICI_SCALER_SPAWN_TIMEOUT_MS", "KICI_AGENT_TOKEN_TTL_MS", "KICI_SCALER_PROVISION_BACKOFF_BASE_MS",
	"KICI_SCALER_PROVISION_BACKOFF_MAX_MS", "KICI_SCALER_PENDING_SWEEP_INTERVAL_MS", "KICI_MIRROR_MAX_BYTES",
}

// Variables names what an agent may find in its environment.
func Variables() []string { return slices.Concat(known, foreign) }

// markName is by what a node finds the processes that an agent left behind; steps inherit it.
const markName = "KICI_AGENT_MARK"

// knownPrefixes are names that tests and the server's own settings for agents begin with.
var knownPrefixes = []string{"KICI_AGENT_ENV_", "KICI_TEST_", "KICI_BENCH_"}

// ConfigFromEnv reads an environment, in which the names of others may stand beside the agent's. All mistakes are reported at once.
func ConfigFromEnv(environ []string, others ...string) (Config, error) {
	e := envReader{vars: map[string]string{}}
	names := slices.Concat(Variables(), others)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "KICI_") {
			continue
		}
		e.vars[name] = value
		if slices.Contains(names, name) || slices.ContainsFunc(knownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		e.fail("%s is not a setting of the agent", name)
	}
	c := Config{
		URL: e.vars["KICI_ORCHESTRATOR_URL"], Token: e.vars["KICI_AGENT_TOKEN"], TokenFile: e.vars["KICI_AGENT_TOKEN_FILE"],
		TokenFD: int(e.number("KICI_AGENT_TOKEN_FD", 0)), AgentID: e.vars["KICI_AGENT_ID"], WorkDir: e.vars["KICI_WORK_DIR"],
		Managed: e.flag("KICI_SCALER_MANAGED"), JobImage: e.flag("KICI_JOB_IMAGE_AGENT"), Process: true,
		IdleTimeout:    e.ms("KICI_SCALER_IDLE_TIMEOUT", defaultIdle),
		PendingTimeout: e.ms("KICI_SCALER_PENDING_DISPATCH_TIMEOUT", defaultPending),
		JobHeartbeat:   e.ms("KICI_JOB_HEARTBEAT_INTERVAL_MS", defaultJobHeartbeat),
		StepTimeout:    e.ms("KICI_DEFAULT_STEP_TIMEOUT_MS", job.DefaultStepTimeout),
		MaxLogBytes:    e.number("KICI_MAX_LOG_SIZE_BYTES", wire.MaxJobLogBytes),
		MinFreeDisk:    e.number("KICI_MIN_FREE_DISK_BYTES", defaultMinFreeDisk),
	}
	window := time.Duration(0)
	if c.Managed {
		window = defaultReconnectWindow
	}
	c.TokenStdin = c.TokenFD == 0 && strings.TrimSpace(e.vars["KICI_AGENT_TOKEN_FD"]) != ""
	c.ReconnectWindow = e.ms("KICI_RECONNECT_WINDOW_MS", window)
	c.Labels = ci.NormalizeLabels(strings.Split(e.vars["KICI_LABELS"], ","))
	c.Properties = e.properties()
	c.Sandbox = e.sandbox()
	c.Environ = inherited(environ, c.Managed)
	e.refuse()
	return c, errors.Join(e.errs...)
}

type envReader struct {
	vars map[string]string
	errs []error
}

func (e *envReader) fail(format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf(format, args...))
}

func (e *envReader) number(name string, fallback int64) int64 {
	v := strings.TrimSpace(e.vars[name])
	if v == "" {
		return fallback
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		e.fail("%s must be a whole number, not %q", name, v)
		return fallback
	}
	return n
}

func (e *envReader) ms(name string, fallback time.Duration) time.Duration {
	return time.Duration(e.number(name, fallback.Milliseconds())) * time.Millisecond
}

func (e *envReader) flag(name string) bool {
	switch strings.ToLower(strings.TrimSpace(e.vars[name])) {
	case "", "0", "false":
		return false
	case "1", "true":
		return true
	}
	e.fail("%s must be 1 or 0, not %q", name, e.vars[name])
	return false
}

func (e *envReader) properties() map[string]string {
	var out map[string]string
	for part := range strings.SplitSeq(e.vars["KICI_PROPERTIES"], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		if !ok || k == "" {
			e.fail("KICI_PROPERTIES must be name=value pairs divided by commas, not %q", part)
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

// sandbox reads what steps may see of the machine.
func (e *envReader) sandbox() *job.Sandbox {
	if !e.flag("KICI_SANDBOX") {
		return nil
	}
	s := &job.Sandbox{Network: ci.NetworkIsolated}
	if v := e.vars["KICI_SANDBOX_NETWORK"]; v != "" {
		s.Network = v
	}
	if s.Network != ci.NetworkIsolated && s.Network != ci.NetworkHost {
		e.fail("KICI_SANDBOX_NETWORK must be %s or %s, not %q", ci.NetworkIsolated, ci.NetworkHost, s.Network)
	}
	for _, p := range e.paths("KICI_SANDBOX_PATHS") {
		if path, writable := strings.CutSuffix(p, ":rw"); writable {
			s.Write = append(s.Write, path)
		} else {
			s.Read = append(s.Read, strings.TrimSuffix(p, ":ro"))
		}
	}
	s.Hidden = e.paths("KICI_SANDBOX_HIDDEN")
	return s
}

// paths are absolute, divided by commas.
func (e *envReader) paths(name string) (out []string) {
	for p := range strings.SplitSeq(e.vars[name], ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		if !filepath.IsAbs(p) {
			e.fail("%s must hold absolute paths divided by commas, not %q", name, p)
		}
		out = append(out, p)
	}
	return out
}

// refuse names what this agent would otherwise silently not do.
func (e *envReader) refuse() {
	if e.vars["KICI_CLAIM_CODE"] != "" {
		e.fail("KICI_CLAIM_CODE: this version cannot redeem claim codes yet; give it an agent token")
	}
}

// inherited is what steps get of the agent's own environment. A scaler composes its agents' environment for this purpose;
// an agent started by hand stands in a person's shell, of which steps get only what programs need to work.
func inherited(environ []string, managed bool) []string {
	var out []string
	for _, kv := range environ {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.HasPrefix(name, "KICI_") && name != markName {
			continue
		}
		if name == markName || managed || slices.Contains(ordinary, name) || strings.HasPrefix(name, "LC_") {
			out = append(out, kv)
		}
	}
	return out
}

// StepEnviron is what steps get of a person's shell: what programs need to work, and nothing else.
func StepEnviron(environ []string) []string { return inherited(environ, false) }

var ordinary = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "NODE_PATH", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME",
	"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"PATHEXT", "SystemRoot", "windir", "COMSPEC", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA", "APPDATA",
	"PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS",
}

// complete fills what was left open and checks the rest.
func (c *Config) complete() error {
	var errs []error
	if c.URL == "" {
		errs = append(errs, errors.New("KICI_ORCHESTRATOR_URL (or --url) says where the orchestrator is; it is missing"))
	}
	host, _ := os.Hostname()
	if c.AgentID == "" {
		c.AgentID = workdir.CleanID(host) + "-" + ci.RandomHex(4)
	}
	if workdir.CleanID(c.AgentID) != c.AgentID {
		errs = append(errs, fmt.Errorf("the agent id %q may hold letters, digits, dots, dashes and underscores only", c.AgentID))
	}
	c.Labels = ci.NormalizeLabels(c.Labels)
	for _, l := range c.Labels {
		if !c.Managed && strings.HasPrefix(l, "kici:") {
			errs = append(errs, fmt.Errorf("the label %q is reserved: labels that begin with kici: come from the orchestrator", l))
		}
	}
	if c.WorkDir == "" {
		c.WorkDir = filepath.Join(os.TempDir(), fmt.Sprintf("kici-agents-%d", os.Getuid()))
	}
	for _, d := range []struct {
		v        *time.Duration
		fallback time.Duration
	}{{&c.IdleTimeout, defaultIdle}, {&c.PendingTimeout, defaultPending}, {&c.JobHeartbeat, defaultJobHeartbeat}, {&c.termPatience, defaultTermPatience}} {
		if *d.v <= 0 {
			*d.v = d.fallback
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Log = c.Log.With("component", "agent", "agent_id", c.AgentID)
	if c.Executable == "" {
		c.Executable, _ = os.Executable() // without it steps have no kici on their PATH
	}
	if c.HTTP == nil {
		c.HTTP = newHTTPClient(link.Socket(c.URL))
	}
	if c.Perform == nil {
		c.Perform = func(c job.Config) Performer { return job.New(c) }
	}
	return errors.Join(errs...)
}

// newHTTPClient keeps few connections: an agent speaks to one place. With a socket that place is there, whatever an address says.
func newHTTPClient(socket string) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 2, 2
	t.ForceAttemptHTTP2 = false // the socket needs HTTP/1.1, and one protocol is enough code to keep in memory
	t.TLSNextProto = nil
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: t}
}
