// Package job runs one job: workspace, checkout, steps, outputs. It knows nothing of links: it is given a wire.JobSpec, a
// spool for the log and a function that takes step reports, and returns how the job ended.
//
// A job's private directory holds all it leaves on the disk:
//
//	exec.json    who is to be ended if the agent dies (exec.State)
//	workspace/   the checkout and the steps' working directory
//	temp/        KICI_TEMP: scripts, command files, the event; outside the workspace
//	spool/       the log on its way
//	c/, bin/     how steps ask for something, and the kici command (stepcall)
//	home/, tmp/  HOME and /tmp of a job in a sandbox; root/ is where its file system is built
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/agent/mask"
	"github.com/kici-go/kici/internal/agent/sandbox"
	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Times that a job falls back to.
const (
	DefaultGrace       = 10 * time.Second // TERM → KILL
	DefaultStepTimeout = 30 * time.Minute
	cleanupWindow      = 2 * time.Minute // for steps with if: always() or cancelled() after a cancel
)

// The kinds of wire.JobStatus.InitFailure that arise here.
const (
	InitSpec      = "spec"
	InitWorkspace = "workspace"
	InitCheckout  = "checkout"
	InitSandbox   = "sandbox"
)

// Config is what a job needs. All fields but Version, Workspace, MinFreeDisk, Fill, Source and Begun are required.
type Config struct {
	Spec        wire.JobSpec
	Dir         string // the job's private directory, existing and empty
	Workspace   string // where steps work, existing; "" is Dir/workspace, which is the job's own
	AgentID     string
	Hostname    string
	Version     string
	Environ     []string // what steps inherit from the machine
	StepTimeout time.Duration
	MinFreeDisk int64 // bytes free on the workspace's disk below which the job is warned; 0 for never
	Exclusive   bool  // see exec.Options
	NoCgroup    bool
	JobImage    bool             // it runs in the image that the job asks for
	Sandbox     *Sandbox         // nil: steps see the machine as it is
	Ask         stepcall.Handler // where steps' requests go; nil: they have no way back
	Executable  string           // what "kici" is inside a step; "" puts none on their PATH
	// Fill, if not nil, puts the repository into the workspace instead of git: what it says goes into the log.
	Fill func(ctx context.Context, workspace string, log io.Writer) error
	// Source gets the files of the commit as a tar from the server, for a machine without git; nil: there is no such way.
	Source func(ctx context.Context) (io.ReadCloser, error)
	Spool  *spool.Spool
	Report func(wire.StepStatus) // Seq is filled in by the receiver; never blocks for long
	// Begun, if not nil, is closed when the orchestrator has noted that the job runs here. No step runs before that: until then the
	// job may be given to another agent.
	Begun <-chan struct{}
	Now   func() time.Time
	Log   *slog.Logger
}

// Outcome is how a job ended.
type Outcome struct {
	Status      ci.JobStatus // success, failed or cancelled
	Outputs     map[string]string
	Error       string
	InitFailure string
	KillMethod  string
	TimedOut    bool // it exceeded the job's own timeout
	StartedAt   int64
	FinishedAt  int64
}

// Job is one job. Cancel may be called at any time, also before Run.
type Job struct {
	cfg  Config
	def  lock.Job
	defs lock.RunDefaults
	tree *exec.Tree
	mask *mask.Set
	back *stepcall.Server // nil when steps have no way back

	base     context.Context // ends when everything must stop at once
	stopBase context.CancelCauseFunc
	soft     context.Context // ends when the job is cancelled or its time is over; a child of base
	stopSoft context.CancelCauseFunc

	disk disk

	mu      sync.Mutex
	grace   time.Duration
	cleanup *time.Timer
	open    *spool.Step // the log of what runs now; nil between two steps

	// Owned by Run's goroutine.
	contexts map[string]any // of the spec, decoded
	env      map[string]string
	paths    []string // KICI_PATH, the last written first
	steps    map[string]any
	status   string // success, failure or cancelled, as conditions see it
	limit    string // the limit that made a step fail, for people
	checked  bool   // the commit is in the workspace
	notices  []string
	box      *sandbox.Report // nil: there is no sandbox
}

// The reasons for which a job is stopped early.
var (
	errCancelled = errors.New("the job was cancelled")
	errForced    = errors.New("the job was cancelled by force")
	errTimeout   = errors.New("the job exceeded its timeout")
	// ErrAborted is the reason given to Abort when the agent itself must stop.
	ErrAborted = errors.New("the agent was stopped while it ran the job")
	// ErrGone is the reason given to Abort when the job was taken away from this agent.
	ErrGone = errors.New("the job was given to another agent")
)

// New prepares a job; Run must be called.
func New(c Config) *Job {
	j := &Job{cfg: c, mask: mask.New(), status: "success", steps: map[string]any{}, env: map[string]string{}}
	for _, v := range c.Spec.Secrets {
		j.mask.Add(v)
	}
	if c.Spec.Checkout != nil {
		j.mask.Add(c.Spec.Checkout.Password)
	}
	j.disk = newDisk(c.MinFreeDisk, j.workspace())
	j.grace = time.Duration(c.Spec.GraceMs) * time.Millisecond
	if j.grace <= 0 {
		j.grace = DefaultGrace
	}
	j.base, j.stopBase = context.WithCancelCause(context.Background())
	j.soft, j.stopSoft = context.WithCancelCause(j.base)
	return j
}

// Cancel stops the job. The running step is asked to go, and killed after the grace; steps that say always() or
// cancelled() still run. With force everything is killed now. It may be called again, to force.
func (j *Job) Cancel(force bool, grace time.Duration) {
	if grace > 0 {
		j.mu.Lock()
		j.grace = grace
		j.mu.Unlock()
	}
	if force {
		j.stopBase(errForced)
	}
	j.stop(errCancelled)
}

// stop ends what runs, and what may still run after it when the time for cleaning up is over.
func (j *Job) stop(why error) {
	j.mu.Lock()
	if j.cleanup == nil {
		j.cleanup = time.AfterFunc(j.grace+cleanupWindow, func() { j.stopBase(errForced) })
	}
	j.mu.Unlock()
	j.stopSoft(why)
}

// Abort kills everything now; the job counts as failed for that reason.
func (j *Job) Abort(why error) { j.stopBase(why) }

// Run runs the job to its end. It returns when nothing of the job runs any more and its log is complete in the spool.
func (j *Job) Run() Outcome {
	out := Outcome{StartedAt: j.now()}
	defer j.stopBase(nil)
	var timer *time.Timer
	if d := time.Duration(j.cfg.Spec.TimeoutMs) * time.Millisecond; d > 0 {
		timer = time.AfterFunc(d, func() { j.stop(errTimeout) })
		defer timer.Stop()
	}
	defer j.watchDisk()()
	kind, err := j.setUp()
	if j.tree != nil {
		out.KillMethod = j.tree.Method()
	}
	if err != nil {
		out.InitFailure, out.Error = kind, j.mask.String(err.Error())
		j.skipAll()
	} else {
		j.awaitBegun()
		j.runSteps()
		out.Outputs, err = j.outputs()
		if err != nil {
			j.status, out.Error = "failure", j.mask.String(err.Error())
		}
	}
	j.tearDown()
	j.verdict(&out)
	out.Error, out.FinishedAt = clip(out.Error, maxErrorBytes), j.now()
	return out
}

// awaitBegun waits until the orchestrator knows that the job runs here, or until it is stopped. While the workspace was made, the
// answer has nearly always come.
func (j *Job) awaitBegun() {
	if j.cfg.Begun == nil {
		return
	}
	select {
	case <-j.cfg.Begun:
	case <-j.soft.Done():
	}
}

// verdict decides the status. A cancel that came after the last step changes nothing any more (STM-6).
func (j *Job) verdict(out *Outcome) {
	cause := context.Cause(j.soft)
	switch {
	case errors.Is(cause, ErrAborted), errors.Is(cause, ErrGone):
		out.Status, out.Error = ci.JobFailed, cause.Error()
	case errors.Is(cause, errTimeout) && j.status != "success":
		out.Status, out.TimedOut = ci.JobFailed, true
		out.Error = fmt.Sprintf("%s of %s", errTimeout, time.Duration(j.cfg.Spec.TimeoutMs)*time.Millisecond)
	case j.status == "cancelled" || (cause != nil && out.InitFailure != ""):
		out.Status, out.InitFailure, out.Error = ci.JobCancelled, "", errCancelled.Error()
	case j.status == "failure" || out.InitFailure != "":
		out.Status = ci.JobFailed
		if out.Error == "" {
			out.Error = j.mask.String(j.limit)
		}
	default:
		out.Status = ci.JobSuccess
	}
}

func (j *Job) now() int64 { return j.cfg.Now().UnixMilli() }

func (j *Job) path(elem ...string) string {
	return filepath.Join(append([]string{j.cfg.Dir}, elem...)...)
}

func (j *Job) workspace() string {
	if j.cfg.Workspace != "" {
		return j.cfg.Workspace
	}
	return j.path("workspace")
}

func (j *Job) temp() string { return j.path("temp") }

func (j *Job) gracePeriod() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.grace
}

// tearDown ends what steps left running and says so.
func (j *Job) tearDown() {
	if j.tree != nil {
		j.tree.Close()
	}
	if j.back != nil {
		j.back.Close()
	}
	j.mu.Lock()
	if j.cleanup != nil {
		j.cleanup.Stop()
	}
	j.mu.Unlock()
	if len(j.notices) > 0 {
		j.complete()
	}
}

// complete adds a last step that holds what is to be said about the end; it exists only when there is something.
func (j *Job) complete() {
	index := len(j.def.Steps) + 1
	log, err := j.cfg.Spool.Open(index)
	if err != nil {
		j.cfg.Log.Warn("open the log of the job's end", "err", err)
		return
	}
	now := j.now()
	for _, n := range j.notices {
		log.Notice("%s", j.mask.String(n))
	}
	log.Close()
	j.report(wire.StepStatus{StepIndex: index, Name: "Complete job", Status: string(ci.StepSuccess), StartedAt: now, FinishedAt: j.now()})
}

func (j *Job) report(s wire.StepStatus) {
	s.RunID, s.JobID, s.Attempt = j.cfg.Spec.RunID, j.cfg.Spec.JobID, j.cfg.Spec.Attempt
	s.Name, s.Error = clip(j.mask.String(s.Name), maxNameBytes), clip(j.mask.String(s.Error), maxErrorBytes)
	j.cfg.Report(s)
}

// Bounds of texts in reports, which travel in frames of limited size.
const (
	maxNameBytes  = 400
	maxErrorBytes = 4 << 10
)

// Clip bounds the text of an error in a report.
func Clip(s string) string { return clip(s, maxErrorBytes) }

// clip cuts a text to at most n bytes, at the end of a character.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// decode reads the definition and the contexts.
func (j *Job) decode() error {
	s := j.cfg.Spec
	if err := json.Unmarshal(s.Job, &j.def); err != nil {
		return fmt.Errorf("read the job's description: %w", err)
	}
	if len(s.Defaults) > 0 {
		if err := json.Unmarshal(s.Defaults, &j.defs); err != nil {
			return fmt.Errorf("read the workflow's defaults: %w", err)
		}
	}
	j.contexts = map[string]any{}
	for name, raw := range map[string]json.RawMessage{
		"kici": s.Contexts.Kici, "matrix": s.Contexts.Matrix, "needs": s.Contexts.Needs, "inputs": s.Contexts.Inputs,
	} {
		value := map[string]any{}
		if len(raw) > 0 && string(raw) != "null" {
			if err := json.Unmarshal(raw, &value); err != nil {
				return fmt.Errorf("read the context %s: %w", name, err)
			}
		}
		j.contexts[name] = value
	}
	return nil
}

// listen gives steps their way back. A job that never asks does not fail for want of it.
func (j *Job) listen(log *spool.Step) {
	if j.cfg.Ask == nil {
		return
	}
	s, err := stepcall.Listen(stepcall.Config{Dir: j.cfg.Dir, Executable: j.cfg.Executable, Handle: j.cfg.Ask, Now: j.cfg.Now, Log: j.cfg.Log})
	if err != nil {
		log.Notice("Steps of this job can neither emit events nor add jobs: %s", err)
		return
	}
	j.back = s
	j.mask.Add(s.Token())
}

// directories makes the job's private directories.
func (j *Job) directories() error {
	for _, d := range []string{j.workspace(), j.temp()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make the workspace: %w", err)
		}
	}
	return nil
}
