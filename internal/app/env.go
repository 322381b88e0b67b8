package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

const envPrefix = "KICI_"

// knownVariables are all KICI_* names that mean something to some part of kici: a server tolerates a client's variable beside
// its own, and refuses a misspelt one (D20).
var knownVariables = []string{
	// The server's.
	"KICI_DATA_DIR", "KICI_STORAGE_DIR", "KICI_DATABASE_URL", "KICI_HOST", "KICI_PORT", "KICI_BASE_PATH", "KICI_PUBLIC_URL", "KICI_ON_STOP", "KICI_ROLE",
	"KICI_LOG_FORMAT", "KICI_LOG_LEVEL", "KICI_SCALER_CONFIG_PATH", "KICI_SCALER_CONFIG_DIR", "KICI_MACHINE_LEDGER_DIR", "KICI_SECRET_KEY", "KICI_BOOTSTRAP_ADMIN_TOKEN", "KICI_RUN_AS",
	"KICI_ALLOW_ROOT", "KICI_TRUSTED_PROXIES", "KICI_CLUSTER_NAME", "KICI_TRUSTED_ENV",
	// The clients'.
	"KICI_URL", "KICI_TOKEN", "KICI_ADMIN_URL", "KICI_ADMIN_TOKEN", "KICI_OUTPUT_FORMAT", "KICI_ORG",
	// The agent's (AG-1).
	"KICI_ORCHESTRATOR_URL", "KICI_AGENT_ID", "KICI_LABELS", "KICI_PROPERTIES", "KICI_ROLES", "KICI_AGENT_TOKEN", "KICI_AGENT_TOKEN_FD",
	"KICI_AGENT_TOKEN_FILE", "KICI_AGENT_DIR", "KICI_AGENT_MARK", "KICI_WORK_DIR", "KICI_CLAIM_CODE", "KICI_SCALER_MANAGED", "KICI_SCALER_IDLE_TIMEOUT",
	"KICI_SCALER_PENDING_DISPATCH_TIMEOUT", "KICI_EXECUTION_MODE", "KICI_BACKPRESSURE_MODE", "KICI_JOB_HEARTBEAT_INTERVAL_MS",
	"KICI_SANDBOX", "KICI_SANDBOX_NETWORK", "KICI_SANDBOX_PATHS", "KICI_SANDBOX_HIDDEN", "KICI_MAX_LOG_SIZE_BYTES", "KICI_MIN_FREE_DISK_BYTES", "KICI_DEFAULT_STEP_TIMEOUT_MS",
	"KICI_CONCURRENCY_WAIT_TIMEOUT_MS", "KICI_RUNTIME_IMAGE", "KICI_JOB_IMAGE_AGENT", "KICI_RECONNECT_WINDOW_MS",
	// A step's.
	"KICI_OUTPUT", "KICI_ENV", "KICI_PATH", "KICI_SUMMARY", "KICI_STEP_SUMMARY", "KICI_STATE", "KICI_WORKSPACE", "KICI_TEMP", "KICI_STEP", "KICI_REPOSITORY_OWNER", "KICI_TRIGGERING_ACTOR", "KICI_RUN_ID", "KICI_RUN_NUMBER", "KICI_RUN_ATTEMPT",
	"KICI_JOB", "KICI_JOB_ID", "KICI_SHA", "KICI_REF", "KICI_REF_NAME", "KICI_REF_TYPE", "KICI_REPOSITORY", "KICI_WORKFLOW", "KICI_ACTOR",
	"KICI_EVENT_NAME", "KICI_EVENT_PATH", "KICI_BASE_REF", "KICI_HEAD_REF", "KICI_SERVER_URL", "KICI_ACTION", "KICI_STEP_SOCKET", "KICI_STEP_TOKEN",
}

// knownPrefixes begin names that users choose: variables for agents, and those of this project's own tests.
var knownPrefixes = []string{"KICI_AGENT_ENV_", "KICI_TEST_", "KICI_BENCH_"}

// checkEnvironment refuses a KICI_* name that nothing reads, naming the nearest known one.
func checkEnvironment(environ []string) error {
	var problems []string
	known := slices.Concat(knownVariables, roomVariables(), setting.Variables())
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) ||
			slices.ContainsFunc(knownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		text := fmt.Sprintf("the environment variable %s is not known", name)
		if near := suggest.Nearest(name, known); near != "" {
			text += "; did you mean " + near + "?"
		}
		problems = append(problems, text)
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return fmt.Errorf("%s", strings.Join(problems, "\n"))
}

// rootDataDir is the data directory of a server that is root.
const rootDataDir = "/var/lib/kici"

// DefaultDataDir is where a server keeps its data when nobody says where: /var/lib/kici for root, else kici in the user's
// data directory.
func DefaultDataDir() string {
	if os.Geteuid() == 0 {
		return rootDataDir
	}
	if d := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "kici")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "share", "kici")
	}
	return "kici-data"
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
