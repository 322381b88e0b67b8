// Package lock is the contract between an author and the orchestrator: the lock file .kici/kici.lock.json, format
// "kici/1" (D7). It is data only. workflow makes it from YAML; run creation, placement and the agent read it.
// Expressions (${{ }}) are kept as source text and evaluated in the phase that docs/workflows.md names (D8).
package lock

import (
	"encoding/json"

	"github.com/kici-go/kici/internal/ci"
)

// Format is the only format this binary reads and writes.
const Format = "kici/1"

// Bounds of a lock (LOCK-6, WF-6). What exceeds one is refused with an error that names it.
const (
	MaxBytes       = 5 << 20 // encoded lock, and the sum of its source files
	MaxWorkflows   = 500
	MaxJobs        = 2000 // per workflow, before the matrix
	MaxSteps       = 500  // per job
	MaxMatrixCells = 256  // per job
)

// File is a whole lock file.
type File struct {
	Format      string     `json:"format"`      // always "kici/1"
	ContentHash string     `json:"contentHash"` // sha256 hex over the source files' paths and contents (LOCK-7); drift check
	Workflows   []Workflow `json:"workflows"`
}

// Workflow is one workflow.
type Workflow struct {
	Name        string            `json:"name"`       // unique in the repository
	SourceFile  string            `json:"sourceFile"` // .kici/workflows/ci.yaml
	Description string            `json:"description,omitempty"`
	RunName     string            `json:"runName,omitempty"` // expression for the run's title
	On          []Trigger         `json:"on"`
	Env         map[string]string `json:"env,omitempty"`
	Defaults    RunDefaults       `json:"defaults,omitzero"`
	Concurrency *Concurrency      `json:"concurrency,omitempty"`
	TimeoutMs   int64             `json:"timeout,omitempty"` // whole run
	Jobs        []Job             `json:"jobs"`              // in file order
}

// RunDefaults are the defaults of run steps.
type RunDefaults struct {
	Shell            string `json:"shell,omitempty"`
	WorkingDirectory string `json:"workingDirectory,omitempty"`
}

// Concurrency is a concurrency group (CON-*): at most Max owners, 0 is 1, go on at the same time.
type Concurrency struct {
	Group            string `json:"group"`
	CancelInProgress bool   `json:"cancelInProgress,omitempty"`
	Max              int    `json:"max,omitempty"`
}

// Trigger is one element of "on". Type is the lock's own name (push, tag, pr, comment, dispatch, generic_webhook, schedule,
// kici_event, workflow_complete, job_complete, …); the map from YAML names is published in docs/workflows.md. The fields used
// depend on the type (WF-12). Patterns may start with "!".
type Trigger struct {
	Type string `json:"type"`

	Branches       []string         `json:"branches,omitempty"`       // push
	Patterns       []string         `json:"patterns,omitempty"`       // tag
	Paths          []string         `json:"paths,omitempty"`          // push, tag, pr; '!' excludes (WF-14)
	Events         []string         `json:"events,omitempty"`         // pr actions; generic_webhook event names
	TargetBranches []string         `json:"targetBranches,omitempty"` // pr
	SourceBranches []string         `json:"sourceBranches,omitempty"` // pr
	Actions        []string         `json:"actions,omitempty"`        // comment; none is created
	BodyMatch      string           `json:"bodyMatch,omitempty"`      // comment: a glob or /regex/flags
	Types          []string         `json:"types,omitempty"`          // repository_dispatch types
	Inputs         map[string]Input `json:"inputs,omitempty"`         // dispatch (workflow_dispatch), schedule
	Manual         bool             `json:"manual,omitempty"`         // dispatch made from workflow_dispatch
	Source         string           `json:"source,omitempty"`         // generic_webhook: source name; comment: issue or pr; kici_event, *_complete: repository
	EventName      string           `json:"eventName,omitempty"`      // kici_event, exact
	Match          map[string]any   `json:"match,omitempty"`          // JSONPath → expected (WF-16)
	Not            map[string]any   `json:"not,omitempty"`
	Cron           string           `json:"cronExpression,omitempty"` // schedule
	Timezone       string           `json:"timezone,omitempty"`       // schedule; "" is UTC
	Workflow       string           `json:"workflow,omitempty"`       // workflow_complete/job_complete: workflow name
	Job            string           `json:"job,omitempty"`
	Status         []string         `json:"status,omitempty"`

	Sources         []string `json:"sources,omitempty"`       // lifecycle: repositories
	AccumulateForMs int64    `json:"accumulateFor,omitempty"` // workflows_failed_batch
	Repos           []string `json:"repos,omitempty"`         // push, tag, pr, comment, dispatch: makes the workflow global (GLB-1); '!' excludes (WF-14)
}

// Input describes one typed input (WF-9). Type is string, number, integer, boolean or enum ("choice" in YAML).
type Input struct {
	Type        string   `json:"type"`
	Description string   `json:"description,omitempty"`
	Required    bool     `json:"required,omitempty"`
	Default     any      `json:"default,omitempty"`
	Values      []string `json:"values,omitempty"`
	Min         *float64 `json:"min,omitempty"`
	Max         *float64 `json:"max,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
}

// Job is one job before its matrix is expanded.
type Job struct {
	Name            string            `json:"name"`                  // the key under jobs:
	DisplayName     string            `json:"displayName,omitempty"` // name:, an expression; shown instead of Name
	RunsOn          Selector          `json:"runsOn"`
	Needs           []Need            `json:"needs,omitempty"`
	If              string            `json:"if,omitempty"` // expression without ${{ }}; evaluated when ready (D8)
	Env             map[string]string `json:"env,omitempty"`
	Matrix          *Matrix           `json:"matrix,omitempty"`
	FailFast        bool              `json:"failFast,omitempty"`    // the first failure of a child ends the others (NEED-9)
	MaxParallel     int               `json:"maxParallel,omitempty"` // children at the same time; 0 is all
	Outputs         map[string]string `json:"outputs,omitempty"`     // name → expression over steps
	TimeoutMs       int64             `json:"timeout,omitempty"`
	ContinueOnError string            `json:"continueOnError,omitempty"` // "true", "false" or an expression over matrix
	Resources       *ci.Claim         `json:"resources,omitempty"`
	Container       *Container        `json:"container,omitempty"`
	Sandbox         *Sandbox          `json:"sandbox,omitempty"`
	Checkout        *bool             `json:"checkout,omitempty"` // nil is true
	Defaults        RunDefaults       `json:"defaults,omitzero"`
	Concurrency     *Concurrency      `json:"concurrency,omitempty"`
	GracePeriodMs   int64             `json:"gracePeriod,omitempty"` // TERM → KILL on cancel; 0 is the default
	Steps           []Step            `json:"steps"`
	Line            int               `json:"line,omitempty"` // in SourceFile, for messages
}

// Selector is runs-on: labels required and labels refused. Elements may be expressions.
type Selector struct {
	Labels  []string `json:"labels,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// Need is one edge: the job waits for Job and runs when its terminal status is in RunOn (WF-5).
type Need struct {
	Job   string         `json:"job"`
	RunOn []ci.JobStatus `json:"runOn"`
}

// Matrix is a static matrix (WF-6). Values are scalars, lists or objects, as JSON. A string in it with ${{ }} is evaluated at run
// creation; one that is the only value of a dimension and gives a list becomes the dimension's values.
type Matrix struct {
	Dimensions map[string][]json.RawMessage `json:"dimensions,omitempty"`
	Order      []string                     `json:"order,omitempty"` // dimension names as written; names and children follow it
	Include    []map[string]json.RawMessage `json:"include,omitempty"`
	Exclude    []map[string]json.RawMessage `json:"exclude,omitempty"`
	Expression string                       `json:"expression,omitempty"` // a whole-matrix expression, e.g. fromJSON(inputs.list), evaluated at run creation

	IncludeExpression string `json:"includeExpression,omitempty"` // gives a list of objects that follow Include
	ExcludeExpression string `json:"excludeExpression,omitempty"` // likewise
}

// Container is a job's own image: its agent is started in it (CT-10).
type Container struct {
	Image       string            `json:"image"`
	Env         map[string]string `json:"env,omitempty"` // below the workflow's and the job's
	Credentials *Credentials      `json:"credentials,omitempty"`
}

// Sandbox is what a job asks for beyond what a sandbox gives, where its agent is in one. The organisation must allow it (PIPE-16).
type Sandbox struct {
	Capabilities []string `json:"capabilities,omitempty"` // of Linux, as ci.Capabilities names them
	Network      string   `json:"network,omitempty"`      // ci.NetworkHost; "" is ci.NetworkIsolated
}

// Credentials open the registry of an image. Both are expressions, evaluated by the server when the agent is started.
type Credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Step is one step.
type Step struct {
	ID               string            `json:"id,omitempty"`
	Name             string            `json:"name,omitempty"` // an expression; "" shows the first line of Run
	If               string            `json:"if,omitempty"`   // expression without ${{ }}; evaluated on the agent
	Run              string            `json:"run,omitempty"`  // script with expressions
	Uses             string            `json:"uses,omitempty"` // only "checkout" (from actions/checkout)
	Shell            string            `json:"shell,omitempty"`
	WorkingDirectory string            `json:"workingDirectory,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	TimeoutMs        int64             `json:"timeout,omitempty"`
	ContinueOnError  string            `json:"continueOnError,omitempty"` // "true", "false" or an expression
	Retry            *Retry            `json:"retry,omitempty"`
	Line             int               `json:"line,omitempty"`
}

// Retry is the policy of a step that may fail (WF-4).
type Retry struct {
	MaxAttempts int    `json:"maxAttempts"`          // ≥ 1, counting the first
	DelayMs     int64  `json:"delayMs,omitempty"`    // 0 is 1000
	Backoff     string `json:"backoff,omitempty"`    // exponential (default) or fixed
	MaxDelayMs  int64  `json:"maxDelayMs,omitempty"` // 0 is 30000
}
