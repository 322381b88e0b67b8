//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

const testToken = "kat_0123"

// coordinator is a fake of the other side over real sockets. It keeps what agents send, acknowledges it, and misbehaves on
// demand.
type coordinator struct {
	t    testing.TB
	addr string
	srv  *http.Server

	mu       sync.Mutex
	conn     *websocket.Conn
	ack      wire.RegisterAck
	regs     []wire.Register
	frames   []wire.Frame
	specs    map[string]wire.JobSpec
	logs     map[string][]byte // job/attempt/step → bytes
	posts    int
	mute     bool                                                            // acknowledge no report
	refuse   int                                                             // close code instead of register.ack
	onPost   func(n int, w http.ResponseWriter, r *http.Request) (done bool) // called without mu
	onFetch  func(w http.ResponseWriter) (done bool)
	goneJob  string
	deafWire bool // accept no socket
}

func newCoordinator(t testing.TB) *coordinator {
	c := &coordinator{t: t, specs: map[string]wire.JobSpec{}, logs: map[string][]byte{}, addr: "127.0.0.1:0"}
	c.start()
	t.Cleanup(c.stop)
	return c
}

func (c *coordinator) start() {
	var l net.Listener
	await(c.t, "the port is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", c.addr)
		return err == nil
	})
	c.addr = l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /base"+wire.PathSocket, c.socket)
	mux.HandleFunc("GET /base"+wire.PathJob, c.job)
	mux.HandleFunc("POST /base"+wire.PathLog, c.log)
	c.srv = &http.Server{Handler: mux}
	srv := c.srv
	go func() { _ = srv.Serve(l) }()
}

// alsoAt serves at a socket of the file system, without a base path.
func (c *coordinator) alsoAt(path string) {
	l, err := net.Listen("unix", path)
	if err != nil {
		c.t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/base" + r.URL.Path
		c.srv.Handler.ServeHTTP(w, r)
	})}
	go func() { _ = srv.Serve(l) }()
	c.t.Cleanup(func() { _ = srv.Close() })
}

// stop is a kill: nothing says goodbye.
func (c *coordinator) stop() {
	_ = c.srv.Close()
	c.drop()
}

func (c *coordinator) drop() {
	c.mu.Lock()
	conn := c.conn
	c.conn = nil
	c.mu.Unlock()
	if conn != nil {
		_ = conn.CloseNow()
	}
}

func (c *coordinator) url() string { return "ws://" + c.addr + "/base/ws" }

func (c *coordinator) socket(w http.ResponseWriter, r *http.Request) {
	if c.deafWire {
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(wire.MaxFrameBytes)
	ctx := context.Background()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		f, err := link.Decode(data)
		if err != nil {
			c.t.Errorf("the agent sent %q: %v", data, err)
			return
		}
		if !c.answer(conn, f) {
			return
		}
	}
}

func (c *coordinator) answer(conn *websocket.Conn, f wire.Frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	send := func(kind string, body any) {
		data, err := link.Encode(kind, body)
		if err != nil {
			c.t.Error(err)
		}
		_ = conn.Write(context.Background(), websocket.MessageText, data)
	}
	switch f.Type {
	case wire.TypeAuthRequest:
		if b, err := link.Body[wire.AuthRequest](f); err != nil || b.Token != testToken {
			send(wire.TypeAuthFailure, wire.AuthFailure{Reason: "unknown token"})
			go conn.Close(wire.CloseAuthFailed, "unknown token")
			return false
		}
		send(wire.TypeAuthSuccess, wire.AuthSuccess{ConnectionID: "c"})
	case wire.TypeRegister:
		b, _ := link.Body[wire.Register](f)
		c.regs = append(c.regs, b)
		if c.refuse != 0 {
			code := c.refuse
			c.mu.Unlock()
			_ = conn.Close(websocket.StatusCode(code), "refused by the test")
			c.mu.Lock()
			return false
		}
		c.conn = conn
		ack := c.ack
		ack.AgentID = b.AgentID
		send(wire.TypeRegisterAck, ack)
	case wire.TypeStepStatus, wire.TypeJobStatus:
		c.frames = append(c.frames, f)
		var b struct {
			JobID   string
			Attempt int
			Seq     int64
		}
		_ = json.Unmarshal(f.Body, &b)
		if !c.mute || b.Seq == 1 { // without the first no step runs
			send(wire.TypeReportAck, wire.ReportAck{JobID: b.JobID, Attempt: b.Attempt, Seq: b.Seq, Gone: c.goneJob == b.JobID})
		}
	default:
		c.frames = append(c.frames, f)
	}
	return true
}

func (c *coordinator) send(kind string, body any) {
	c.t.Helper()
	await(c.t, "an agent is connected", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.conn != nil })
	data, err := link.Encode(kind, body)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.Write(context.Background(), websocket.MessageText, data); err != nil {
		c.t.Logf("send %s: %v", kind, err)
	}
}

func (c *coordinator) authorised(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Authorization") != "Bearer "+testToken || r.Header.Get("X-Kici-Agent") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
	return true
}

func (c *coordinator) job(w http.ResponseWriter, r *http.Request) {
	if !c.authorised(w, r) {
		return
	}
	c.mu.Lock()
	onFetch := c.onFetch
	c.mu.Unlock()
	if onFetch != nil && onFetch(w) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	spec, ok := c.specs[r.PathValue("job")]
	if !ok {
		w.WriteHeader(http.StatusGone)
		return
	}
	_ = json.NewEncoder(w).Encode(spec)
}

func (c *coordinator) log(w http.ResponseWriter, r *http.Request) {
	if !c.authorised(w, r) {
		return
	}
	c.mu.Lock()
	c.posts++
	n, onPost := c.posts, c.onPost
	c.mu.Unlock()
	if onPost != nil && onPost(n, w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.PathValue("job") + "/" + r.URL.Query().Get("attempt") + "/" + r.URL.Query().Get("step")
	offset, _ := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	have := c.logs[key]
	if offset > int64(len(have)) {
		w.WriteHeader(http.StatusConflict)
	} else if end := offset + int64(len(body)); end > int64(len(have)) {
		c.logs[key] = append(have, body[int64(len(have))-offset:]...)
	}
	_ = json.NewEncoder(w).Encode(wire.LogAck{Offset: int64(len(c.logs[key]))})
}

// store stores a chunk without an answer.
func (c *coordinator) store(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.PathValue("job") + "/" + r.URL.Query().Get("attempt") + "/" + r.URL.Query().Get("step")
	offset, _ := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.logs[key]
	if end := offset + int64(len(body)); offset <= int64(len(have)) && end > int64(len(have)) {
		c.logs[key] = append(have, body[int64(len(have))-offset:]...)
	}
}

// give dispatches a job with these steps.
func (c *coordinator) give(id string, steps ...lock.Step) wire.JobDispatch {
	raw, _ := json.Marshal(lock.Job{Name: id, Steps: steps})
	c.mu.Lock()
	c.specs[id] = wire.JobSpec{RunID: "run", JobID: id, Attempt: 1, Job: raw, GraceMs: 200, Workflow: "w"}
	c.mu.Unlock()
	d := wire.JobDispatch{RunID: "run", JobID: id, Attempt: 1}
	c.send(wire.TypeJobDispatch, d)
	return d
}

// reports of a job, each sequence number once, in order of numbers.
func (c *coordinator) reports(id string) (steps []wire.StepStatus, jobs []wire.JobStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[int64]bool{}
	for _, f := range c.frames {
		switch f.Type {
		case wire.TypeStepStatus:
			if b, _ := link.Body[wire.StepStatus](f); b.JobID == id && !seen[b.Seq] {
				seen[b.Seq] = true
				steps = append(steps, b)
			}
		case wire.TypeJobStatus:
			if b, _ := link.Body[wire.JobStatus](f); b.JobID == id && !seen[b.Seq] {
				seen[b.Seq] = true
				jobs = append(jobs, b)
			}
		}
	}
	return steps, jobs
}

// final waits for the job's last report.
func (c *coordinator) final(id string) wire.JobStatus {
	c.t.Helper()
	var last wire.JobStatus
	await(c.t, "the job "+id+" ends", func() bool {
		_, jobs := c.reports(id)
		if len(jobs) > 0 {
			last = jobs[len(jobs)-1]
		}
		return last.Status != "" && last.Status != "running"
	})
	return last
}

func (c *coordinator) count(kind string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.frames {
		if f.Type == kind {
			n++
		}
	}
	return n
}

func (c *coordinator) awaitFrame(kind string, n int) {
	c.t.Helper()
	await(c.t, kind, func() bool { return c.count(kind) >= n })
}

func (c *coordinator) registrations() []wire.Register {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.regs
}

// text is a step's log without frames.
func (c *coordinator) text(id string, step int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out strings.Builder
	for line := range strings.Lines(string(c.logs[id+"/1/"+strconv.Itoa(step)])) {
		var l wire.LogLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			c.t.Errorf("log line %q: %v", line, err)
		}
		if l.Level != "kici" {
			out.WriteString(l.Msg + "\n")
		}
	}
	return out.String()
}

func (c *coordinator) awaitText(id string, step int, text string) {
	c.t.Helper()
	await(c.t, "the log says "+text, func() bool { return strings.Contains(c.text(id, step), text) })
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come to pass in a minute: %s", what)
		}
	}
}

// running is an agent under test.
type running struct {
	t    testing.TB
	stop context.CancelFunc
	done chan error
	sig  chan os.Signal
}

func startAgent(t testing.TB, c *coordinator, change func(*Config)) *running {
	t.Helper()
	cfg, err := ConfigFromEnv([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "KICI_ORCHESTRATOR_URL=" + c.url(),
		"KICI_AGENT_TOKEN=" + testToken, "KICI_AGENT_ID=test-agent", "KICI_LABELS=linux,big",
	})
	if err != nil {
		t.Fatal(err)
	}
	sig := make(chan os.Signal, 2)
	cfg.Process, cfg.WorkDir, cfg.Signals, cfg.Version = false, t.TempDir(), sig, "test"
	cfg.Log = slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, stop: cancel, done: make(chan error, 1), sig: sig}
	go func() { r.done <- Main(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(30 * time.Second):
			t.Error("the agent does not stop")
		}
	})
	return r
}

// ends waits for Main to return.
func (r *running) ends() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("the agent does not leave")
		return nil
	}
}
