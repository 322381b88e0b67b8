package stepcall

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/wire"
)

// Bounds of one job's socket.
const (
	maxOpen     = 16               // connections at once; more wait in the kernel's queue
	readWithin  = 10 * time.Second // for a request that has been begun
	burst       = 50
	perSecond   = 20
	maxRequests = 10_000 // of one job
	maxPath     = 100    // bytes of a socket's path: 108 on Linux, 104 elsewhere, with its end
)

// Config is what a server needs. All fields are required.
type Config struct {
	Dir        string // the job's own directory
	Executable string // of kici; "" makes no link
	Handle     Handler
	Now        func() time.Time
	Log        *slog.Logger
}

// Server listens for the steps of one job.
type Server struct {
	cfg    Config
	token  string
	socket string
	bin    string // directory with kici in it, "" for none
	short  string // directory made because Dir is too long, "" for none

	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	open     chan struct{}
	wg       sync.WaitGroup

	mu    sync.Mutex
	level float64
	last  time.Time
	count int
}

// Listen makes the socket. Close must follow.
func Listen(c Config) (*Server, error) {
	var secret [24]byte
	_, _ = rand.Read(secret[:]) // never fails
	s := &Server{cfg: c, token: hex.EncodeToString(secret[:]), open: make(chan struct{}, maxOpen), level: burst, last: c.Now()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	dir, err := s.place()
	if err != nil {
		return nil, err
	}
	s.socket = filepath.Join(dir, "s")
	if s.listener, err = (&net.ListenConfig{}).Listen(s.ctx, "unix", s.socket); err != nil {
		s.clear()
		return nil, fmt.Errorf("listen for steps: %w", err)
	}
	if s.bin, err = linkSelf(filepath.Join(c.Dir, "bin"), c.Executable); err != nil {
		c.Log.Warn("steps do not find kici on their PATH", "err", err)
	}
	s.wg.Go(s.accept)
	return s, nil
}

// shortLink is a symbolic link in the job's directory to the one that was made elsewhere, so that who clears away after a dead agent
// finds it.
const shortLink = "call"

// place makes the directory of the socket: in the job's own, or, where that has too long a name for a socket, a short one.
func (s *Server) place() (string, error) {
	dir := filepath.Join(s.cfg.Dir, "c")
	if len(dir)+2 <= maxPath {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("make the directory of steps: %w", err)
		}
		return dir, nil
	}
	var errs []error
	for _, root := range []string{os.TempDir(), "/tmp"} {
		dir := filepath.Join(root, shortPrefix+s.token[:8])
		if len(dir)+2 > maxPath {
			continue
		}
		_ = os.Symlink(dir, filepath.Join(s.cfg.Dir, shortLink)) // before it is made
		if err := os.Mkdir(dir, 0o700); err != nil {             // not MkdirAll: nobody else's
			errs = append(errs, err)
			continue
		}
		s.short = dir
		return dir, nil
	}
	return "", fmt.Errorf("make the directory of steps: %w", errors.Join(append(errs, errors.New("no short path for a socket"))...))
}

const shortPrefix = "kici-call-"

// ClearShort removes the directory that a job's socket had outside the job's own directory, if there is one. It is for who clears
// away after an agent that was killed.
func ClearShort(jobDir string) {
	dir, err := os.Readlink(filepath.Join(jobDir, shortLink))
	if err != nil || !isShort(dir) {
		return
	}
	_ = os.Remove(filepath.Join(dir, "s"))
	_ = os.Remove(dir)
}

func isShort(dir string) bool {
	base := filepath.Base(dir)
	return filepath.IsAbs(dir) && len(base) == len(shortPrefix)+8 && base[:len(shortPrefix)] == shortPrefix
}

func (s *Server) clear() {
	if s.short != "" {
		_ = os.Remove(s.socket)
		_ = os.Remove(s.short)
	}
}

// Variables are what steps get to find the way back.
func (s *Server) Variables() map[string]string {
	return map[string]string{SocketVariable: s.socket, TokenVariable: s.token}
}

// Dir is the folder of the socket.
func (s *Server) Dir() string { return filepath.Dir(s.socket) }

// Token is the job's, to be kept out of logs.
func (s *Server) Token() string { return s.token }

// Bin is the directory with the kici command; it belongs at the end of PATH. "" when there is none.
func (s *Server) Bin() string { return s.bin }

// Close refuses what is asked from now on, lets nobody wait any longer and removes the socket.
func (s *Server) Close() {
	s.stop()
	_ = s.listener.Close()
	s.wg.Wait()
	s.clear()
}

func (s *Server) accept() {
	for {
		select {
		case s.open <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		conn, err := s.listener.Accept()
		if err != nil {
			if s.ctx.Err() == nil {
				s.cfg.Log.Warn("steps cannot ask any more", "err", err)
			}
			return
		}
		s.wg.Go(func() {
			s.serve(conn)
			<-s.open
		})
	}
}

// serve answers one connection.
func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stop := context.AfterFunc(s.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = conn.SetReadDeadline(time.Now().Add(readWithin))
	line, err := readLine(conn)
	if err != nil {
		s.answer(conn, Refused(wire.StepInvalid, "%s", err))
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	gone := make(chan struct{})
	go func() { // the caller says nothing more: a read that ends means that it is gone
		defer close(gone)
		var one [1]byte
		_, _ = conn.Read(one[:])
		cancel()
	}()
	s.answer(conn, s.handle(ctx, line))
	_ = conn.Close()
	<-gone
}

func (s *Server) handle(ctx context.Context, line []byte) wire.StepResult {
	r, err := Decode(line)
	if err != nil {
		return Refused(wire.StepInvalid, "%s", err)
	}
	if subtle.ConstantTimeCompare([]byte(r.Token), []byte(s.token)) != 1 {
		return Refused(wire.StepNotYours, "%s is not this job's", TokenVariable)
	}
	if bad := Check(r); bad != nil {
		return *bad
	}
	if refused := s.pace(ctx); refused != nil {
		return *refused
	}
	return s.cfg.Handle(ctx, r)
}

// pace slows a storm down, and ends one that never ends.
func (s *Server) pace(ctx context.Context) *wire.StepResult {
	s.mu.Lock()
	now := s.cfg.Now()
	s.level = min(burst, s.level+perSecond*max(now.Sub(s.last).Seconds(), 0)) - 1
	s.last = now
	s.count++
	count, wait := s.count, time.Duration(-s.level/perSecond*float64(time.Second))
	s.mu.Unlock()
	if count > maxRequests {
		return refuse(wire.StepRateLimited, "this job has asked %d times; more is not taken from one job", maxRequests)
	}
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return refuse(wire.StepEnded, "the job is over")
	}
}

func (s *Server) answer(conn net.Conn, r wire.StepResult) {
	data, err := json.Marshal(r)
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(readWithin))
	_, _ = conn.Write(append(data, '\n'))
}
