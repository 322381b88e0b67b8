package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kici-go/kici/client"
)

// server is a `kici server` process of its own.
type server struct {
	cmd  *exec.Cmd
	dir  string
	url  string
	port int
	log  *bytes.Buffer

	args, env []string // besides those of every server
	token     string   // of an owner; "" is the one in its directory
}

const scalersFile = `version: 1
globalMaxAgents: 8
scalers:
  - name: spawn
    type: bare-metal
    maxAgents: 8
    allowRoot: true
    labelSets:
      - labels: [spawn]
`

// start starts a server on a fresh or given data directory and waits until it is ready.
func (b *bench) start(ctx context.Context, dir string) (*server, error) {
	return b.startWith(ctx, server{dir: dir})
}

func (b *bench) startWith(ctx context.Context, of server) (*server, error) {
	dir := of.dir
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	scalers := filepath.Join(dir, "scalers.yaml")
	if _, err := os.Stat(scalers); err != nil {
		if err := os.WriteFile(scalers, []byte(scalersFile), 0o600); err != nil {
			return nil, err
		}
	}
	s := &of
	s.port, s.url, s.log = port, fmt.Sprintf("http://127.0.0.1:%d", port), &bytes.Buffer{}
	if err := s.launch(ctx, b.kici); err != nil {
		return nil, err
	}
	return s, s.wait(ctx, "/ready")
}

func (s *server) launch(ctx context.Context, kici string) error {
	s.cmd = exec.CommandContext(ctx, kici, "server", "--data-dir", s.dir, "--port", strconv.Itoa(s.port), "--on-stop", "end", "--log-level", "warn")
	s.cmd.Args = append(s.cmd.Args, s.args...)
	s.cmd.Env = append(append(os.Environ(), "KICI_LOG_LEVEL=warn"), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	return s.cmd.Start()
}

// wait polls a path every half millisecond.
func (s *server) wait(ctx context.Context, path string) error {
	h := &http.Client{Timeout: time.Second}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Microsecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
		if err != nil {
			return err
		}
		resp, err := h.Do(req)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the server did not become ready: %s", s.log)
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-done
	}
}

func (s *server) client() (*client.Client, error) {
	if s.token != "" {
		return client.New(client.Config{URL: s.url, Token: s.token})
	}
	token, err := os.ReadFile(filepath.Join(s.dir, "admin.token"))
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: s.url, Token: strings.TrimSpace(string(token))})
}

func freePort(ctx context.Context) (int, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// rss is the resident set of a process, whole and the anonymous part, in bytes.
func rss(pid int) (whole, anonymous int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			whole = n << 10
		case "RssAnon:":
			anonymous = n << 10
		}
	}
	if whole == 0 {
		return 0, 0, errors.New("no VmRSS")
	}
	return whole, anonymous, nil
}

// cpu is the processor time that a process has used. It is steadier than the clock on a machine that others use too.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the state on
	if len(f) < 13 {
		return 0, errors.New("short /proc/…/stat")
	}
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * (time.Second / ticksPerSecond), err
}

// meter starts counting processor time; the returned function says what the server, and the benchmark itself beside it, used for
// each of n. Their sum over the number of processors is the most that this machine could do.
func (s *server) meter() func(n int) string { return meter([]*server{s}) }

// meter is server.meter for several: theirs is added up.
func meter(servers []*server) func(n int) string {
	read := func() (used [2]time.Duration, err error) {
		for _, s := range servers {
			one, err := cpu(s.cmd.Process.Pid)
			if err != nil {
				return used, err
			}
			used[0] += one
		}
		used[1], err = cpu(os.Getpid())
		return used, err
	}
	before, err := read()
	return func(n int) string {
		after, err2 := read()
		if err != nil || err2 != nil || n == 0 {
			return "?"
		}
		each := func(i int) float64 { return float64((after[i] - before[i]).Microseconds()) / 1000 / float64(n) }
		return fmt.Sprintf("CPU each: server %.2f ms, clients %.2f ms", each(0), each(1))
	}
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// quantile of durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}
