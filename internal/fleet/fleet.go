// Package fleet holds the sessions of agents that are connected to this coordinator: it registers them, delivers what the
// leader has assigned, takes their reports and logs, and notices when they are lost.
//
// The rows are the truth, a session is only a way to reach an agent: assignments are read from the ledger and repeated
// after a reconnect, a report is acknowledged when it is durable, and everything that ends a session leaves rows from
// which another coordinator, or the next start, goes on. An idle connection costs one goroutine and no buffer of ours.
package fleet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
)

// Settings are the times and bounds of this room. DefaultSettings has the spec's values.
type Settings struct {
	AuthWithin     time.Duration // first frame (AG-7)
	RegisterWithin time.Duration
	Heartbeat      time.Duration // ours, and how often silence is looked at (AG-16)
	Unhealthy      time.Duration
	Dead           time.Duration
	AckWithin      time.Duration                    // QUE-10
	AckFor         func(orgID string) time.Duration // AckWithin of one organisation, if it has its own; nil for none. It answers at once
	Grace          time.Duration                    // of a lost link (D17)
	Linger         time.Duration                    // how long a single-use agent may stay after its job
	CancelGrace    time.Duration                    // TERM → KILL when the job names none
	BeatEvery      time.Duration                    // job heartbeats reach the store at most this often
	MaxSockets     int
}

// ackWithin is how long an agent has to acknowledge a job of an organisation.
func (s Settings) ackWithin(orgID string) time.Duration {
	if s.AckFor == nil {
		return s.AckWithin
	}
	return s.AckFor(orgID)
}

// DefaultSettings returns the spec's values.
func DefaultSettings() Settings {
	return Settings{
		AuthWithin: 5 * time.Second, RegisterWithin: 10 * time.Second, Heartbeat: 30 * time.Second, Unhealthy: 90 * time.Second,
		Dead: 180 * time.Second, AckWithin: 10 * time.Second, Grace: 60 * time.Second, Linger: 60 * time.Second,
		CancelGrace: 10 * time.Second, BeatEvery: 10 * time.Second, MaxSockets: 20_000,
	}
}

// ReportBatch is how what one agent says in one transaction reaches the life of its job. All is idempotent; applied is false when
// somebody was first.
type ReportBatch interface {
	// Holds reports whether the attempt is the agent's and has not ended.
	Holds(jobID string, attempt int) (bool, error)
	Started(r wire.JobStatus) (applied bool, err error)
	Step(r wire.StepStatus) (applied bool, err error)
	Finish(r wire.JobStatus, logBytes int64) (applied bool, err error)
	// Flush writes what was kept back. It comes before anything else that concerns the jobs.
	Flush() error
}

// NewBatch begins a batch of an agent's reports.
type NewBatch func(tx *store.Tx, agentID string) ReportBatch

// losses is what becomes of a job whose agent is not there, or not ready, for it.
type losses interface {
	Requeue(tx *store.Tx, jobID string, attempt int, reason string, countAttempt bool) (bool, error)
	Recover(tx *store.Tx, jobID string, attempt int, by int64) (bool, error)
	Recovered(tx *store.Tx, jobID string, attempt int, agentID string) (bool, error)
	// Lost ends a started job whose agent cannot go on with it, or requeues one that had not started.
	Lost(tx *store.Tx, jobID string, attempt int, reason string) (bool, error)
}

// logStore keeps step logs. Its errors are ErrLogOffset, ErrLogUnavailable, ErrLogInvalid or those of the reader.
type logStore interface {
	Append(ctx context.Context, at LogPosition, r io.Reader) (wire.LogAck, error)
	Finish(at LogPosition)
	Bytes(at LogPosition) int64
}

// LogPosition names a place in the log of a job.
type LogPosition struct {
	RunID, JobID  string
	Attempt, Step int
	Offset        int64
}

// The errors of logStore that become different answers.
var (
	ErrLogOffset      = errors.New("offset is beyond the stored log")
	ErrLogUnavailable = errors.New("log storage is not available")
	ErrLogInvalid     = errors.New("not a step log")
)

// contexts makes the values behind ${{ }} of a job.
type contexts interface {
	AgentContexts(ctx context.Context, jobID string) (wire.Contexts, error)
}

// secrets resolves what ${{ secrets.X }} means in an organisation.
type secrets interface {
	Resolve(ctx context.Context, orgID string) (map[string]string, error)
}

// Clone is how an agent gets a repository: an address and, when needed, a password for HTTPS or a private key for SSH with the
// host keys to accept.
type Clone struct{ URL, Username, Password, SSHKey, KnownHosts string }

type clones interface {
	CloneFor(ctx context.Context, orgID, routingKey string) (Clone, error)
}

// Deps is all that the room needs.
type Deps struct {
	Store      *store.Store
	InstanceID string // of this coordinator
	Reports    NewBatch
	Losses     losses
	Logs       logStore
	Contexts   contexts
	Secrets    secrets
	Clones     clones
	Archive    func(ctx context.Context, c Clone, sha, ref string, w io.Writer) error // writes a tar of a commit
	Events     EventEmitter                                                           // of steps
	Jobs       JobAdder                                                               // of steps
	Metrics    *obs.Metrics
	Env        service.Env
	Log        *slog.Logger
	Settings   Settings
}

// Fleet is the room. It is safe for concurrent use.
type Fleet struct {
	Deps
	wake  *service.Wake
	beats beats
	turns turns

	archives chan struct{} // takes one for each archive that is being sent

	wg      sync.WaitGroup // goroutines of sessions
	sockets atomic.Int64
	readyAt atomic.Int64

	missed map[string]string // the sweep's own: sessions of rows, by agent, that were not here at its last look

	mu       sync.Mutex
	stopping bool
	all      map[*session]struct{}
	byAgent  map[string]*session
}

// New returns the room. Nothing happens until Handler serves and Run runs.
func New(d Deps) *Fleet {
	d.Log = d.Log.With("component", "fleet")
	return &Fleet{
		Deps: d, wake: service.NewWake(), beats: beats{pending: map[jobKey]*session{}}, turns: newTurns(), archives: make(chan struct{}, archivesAtOnce),
		all: map[*session]struct{}{}, byAgent: map[string]*session{},
	}
}

// Handler serves the socket and the routes of agents, below the base path.
func (f *Fleet) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wire.PathSocket, f.socket)
	mux.HandleFunc("GET "+wire.PathJob, f.jobSpec)
	mux.HandleFunc("GET "+wire.PathSource, f.jobSource)
	mux.HandleFunc("POST "+wire.PathLog, f.appendLog)
	return mux
}

// jobKey names one attempt of a job.
type jobKey struct {
	id      string
	attempt int
}

// enter makes s the session of its agent and returns the one that it replaces.
func (f *Fleet) enter(s *session) (old *session, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		return nil, false
	}
	if old = f.byAgent[s.agentID]; old == s {
		old = nil
	}
	f.byAgent[s.agentID] = s
	f.Metrics.AgentsActive.Set(float64(len(f.byAgent)))
	return old, true
}

// leave forgets s; it reports whether s was still its agent's session.
func (f *Fleet) leave(s *session) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, s)
	current := s.agentID != "" && f.byAgent[s.agentID] == s
	if current {
		delete(f.byAgent, s.agentID)
	}
	f.Metrics.AgentsActive.Set(float64(len(f.byAgent)))
	return current
}

func (f *Fleet) session(agentID string) *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byAgent[agentID]
}

// sessions is a snapshot of the registered ones.
func (f *Fleet) sessions() []*session {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*session, 0, len(f.byAgent))
	for _, s := range f.byAgent {
		out = append(out, s)
	}
	return out
}

// Connected is how many agents have a session here.
func (f *Fleet) Connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byAgent)
}

// isStopping reports whether this coordinator leaves: rows are then left as they are.
func (f *Fleet) isStopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopping
}

// turns lets one registration of an agent at a time through, so that the row and the table of sessions agree about which
// socket is the last.
type turns []chan struct{}

func newTurns() turns {
	t := make(turns, 64)
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

func (t turns) take(agentID string) (release func()) {
	h := uint32(2166136261)
	for _, c := range []byte(agentID) {
		h = (h ^ uint32(c)) * 16777619
	}
	c := t[h%uint32(len(t))]
	c <- struct{}{}
	return func() { <-c }
}
