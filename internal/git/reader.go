package git

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The errors of reading a repository, which policy needs to tell apart.
var (
	ErrNotFound    = errors.New("no such object in the repository")
	ErrUnreachable = errors.New("the repository cannot be read")
	ErrTooBig      = errors.New("larger than the limit")
)

// Defaults of Repos.
const (
	defaultReaders = 32
	defaultIdle    = 30 * time.Second
	readTimeout    = 30 * time.Second // one batch of requests, against a hung file system
)

// Repos keeps `git cat-file --batch` processes, one to several a repository, so that reading an object costs a round trip
// through a pipe and not a process (D28). All limits are over all repositories together. It is safe for concurrent use.
type Repos struct {
	busy  chan struct{} // one token for each process in use; its capacity bounds all processes
	keep  time.Duration
	mu    sync.Mutex
	idle  []*reader // least recently used first
	ended bool
}

// ReposOptions bounds a Repos. Zero fields take defaults.
type ReposOptions struct {
	MaxProcesses int           // in use and idle together
	Idle         time.Duration // an unused process is closed after this
}

// NewRepos returns an empty pool. Close it.
func NewRepos(o ReposOptions) *Repos {
	if o.MaxProcesses <= 0 {
		o.MaxProcesses = defaultReaders
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	return &Repos{busy: make(chan struct{}, o.MaxProcesses), keep: o.Idle}
}

// Open returns a handle on the repository at path: a bare one, or one with a work tree, which is never looked at. It does no I/O.
func (p *Repos) Open(path string) *Repo { return &Repo{pool: p, path: filepath.Clean(path)} }

// Close ends all idle processes; those in use end when they are given back.
func (p *Repos) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.ended = nil, true
	p.mu.Unlock()
	for _, r := range idle {
		_ = r.close()
	}
}

// with runs f with a process for the repository in gitDir. f must consume all answers to its requests. A process that had
// died since its last use is replaced once, so f may run twice.
func (p *Repos) with(ctx context.Context, gitDir string, f func(*reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return fmt.Errorf("%w: too many repositories are being read: %w", ErrUnreachable, ctx.Err())
	}
	info, err := os.Stat(gitDir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if r := p.takeIdle(gitDir, info); r != nil {
		if err := p.use(ctx, r, f); !errors.Is(err, errDied) || ctx.Err() != nil {
			return err
		}
	}
	r, err := startReader(gitDir, info)
	if err != nil {
		return err
	}
	return p.use(ctx, r, f)
}

func (p *Repos) use(ctx context.Context, r *reader, f func(*reader) error) error {
	stop := context.AfterFunc(ctx, r.kill)
	err := f(r)
	if !stop() {
		r.broken = true
		err = errors.Join(err, ctx.Err())
	}
	if r.broken {
		if why := r.close(); why != nil && errors.Is(err, errDied) {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return err
	}
	p.giveBack(r)
	return err
}

// takeIdle returns an idle process for exactly this directory (not one that was deleted and made anew), and makes room
// for another when there is none.
func (p *Repos) takeIdle(gitDir string, info fs.FileInfo) *reader {
	p.mu.Lock()
	var found, evicted *reader
	for i := len(p.idle) - 1; i >= 0 && found == nil; i-- {
		if r := p.idle[i]; r.gitDir == gitDir && os.SameFile(r.info, info) {
			found = r
			p.idle = slices.Delete(p.idle, i, i+1)
		}
	}
	if found == nil && len(p.idle) > 0 && len(p.idle)+len(p.busy) > cap(p.busy) {
		evicted = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.mu.Unlock()
	if evicted != nil {
		_ = evicted.close()
	}
	if found != nil {
		found.expiry.Stop()
	}
	return found
}

func (p *Repos) giveBack(r *reader) {
	p.mu.Lock()
	ended := p.ended
	if !ended {
		p.idle = append(p.idle, r)
		r.expiry = time.AfterFunc(p.keep, func() { p.expire(r) })
	}
	p.mu.Unlock()
	if ended {
		_ = r.close()
	}
}

func (p *Repos) expire(r *reader) {
	p.mu.Lock()
	i := slices.Index(p.idle, r)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		_ = r.close()
	}
}

// errDied says that the process ended or broke the protocol; the next one may do better.
var errDied = fmt.Errorf("%w: git cat-file ended", ErrUnreachable)

// reader is one cat-file process.
type reader struct {
	gitDir string
	info   fs.FileInfo
	proc   *Process
	out    *bufio.Reader
	kill   context.CancelFunc
	broken bool
	expiry *time.Timer
}

// readOnly makes git refuse to fetch missing objects of a partial clone: that could run a command which the repository names.
var readOnly = []string{"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none"}

func startReader(gitDir string, info fs.FileInfo) (*reader, error) {
	ctx, cancel := context.WithCancel(context.Background())
	proc, err := Start(ctx, Cmd{
		Args: []string{"cat-file", "--batch"},
		Env:  append([]string{"GIT_DIR=" + gitDir}, readOnly...),
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return &reader{gitDir: gitDir, info: info, proc: proc, out: bufio.NewReaderSize(proc.Out, 32<<10), kill: cancel}, nil
}

func (r *reader) close() error {
	if r.broken {
		r.kill()
	}
	err := r.proc.Close()
	r.kill()
	return err
}

// object is one answer. Kind is "" when there is no such object.
type object struct {
	id, kind string
	data     []byte
}

// get asks for objects by name (already checked: no white space) and returns them in order. More than limit bytes together
// end the process and give ErrTooBig.
func (r *reader) get(limit int64, names ...string) ([]object, error) {
	if _, err := io.WriteString(r.proc.In, strings.Join(names, "\n")+"\n"); err != nil {
		r.broken = true
		return nil, errDied
	}
	found := make([]object, len(names))
	for i := range names {
		var err error
		if found[i], err = r.next(limit); err != nil {
			r.broken = true
			return nil, err
		}
		limit -= int64(len(found[i].data))
	}
	return found, nil
}

func (r *reader) next(limit int64) (object, error) {
	line, err := r.out.ReadSlice('\n')
	if err != nil {
		return object{}, errDied
	}
	fields := strings.Fields(string(line))
	if n := len(fields); n == 2 && (fields[1] == "missing" || fields[1] == "ambiguous") {
		return object{}, nil
	} else if n != 3 {
		return object{}, errDied
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return object{}, errDied
	}
	if size > limit {
		return object{}, fmt.Errorf("%s %s has %d bytes: %w (%d)", fields[1], fields[0], size, ErrTooBig, limit)
	}
	data := make([]byte, size+1)
	if _, err := io.ReadFull(r.out, data); err != nil {
		return object{}, errDied
	}
	return object{id: fields[0], kind: fields[1], data: data[:size]}, nil
}

// treeEntry is one line of a tree object.
type treeEntry struct {
	mode, name, id string
}

// parseTree reads git's binary tree format.
func parseTree(data []byte, idBytes int) ([]treeEntry, error) {
	var entries []treeEntry
	for len(data) > 0 {
		head, rest, ok := bytes.Cut(data, []byte{0})
		mode, name, ok2 := strings.Cut(string(head), " ")
		if !ok || !ok2 || len(rest) < idBytes {
			return nil, fmt.Errorf("%w: malformed tree", ErrUnreachable)
		}
		if !strings.Contains(name, "/") { // git writes no such name; a hostile tree may
			entries = append(entries, treeEntry{mode: mode, name: name, id: hex.EncodeToString(rest[:idBytes])})
		}
		data = rest[idBytes:]
	}
	return entries, nil
}
