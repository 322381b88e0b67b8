// Package git is the one room that runs git. Everything that reaches a command line here may be hostile (branch names,
// commit ids, addresses, repository content), so commands run with a fixed environment that ignores the machine's and
// the user's git configuration, run no hook, ask no question and speak only ordinary protocols; names are checked
// before they become arguments. checkout.go is the agent's side: one exact commit into an empty directory.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// MaxOutput bounds what Run captures when Cmd.Stdout is nil.
const MaxOutput = 64 << 20

// killDelay is how long a cancelled git gets to go after SIGTERM to its process group.
const killDelay = 2 * time.Second

// Cmd is one git command. Args begins with the subcommand; put "--end-of-options" before any hostile argument and check
// it first (CheckRef, CheckSHA, CheckURL).
type Cmd struct {
	Dir      string   // working directory; "" is the root directory, never the caller's
	Args     []string // subcommand and its arguments; visible to every user of the machine: no secrets
	Config   []string // further -c key=value; visible like Args
	SafeDirs []string // repositories that may belong to another user (safe.directory)
	Env      []string // further NAME=value; the only place for a credential
	Stdin    io.Reader
	Stdout   io.Writer // nil: Run captures it
	Stderr   io.Writer // a copy of standard error, e.g. for the job's log
}

// Error is a git command that failed.
type Error struct {
	Command  string // the subcommand only
	ExitCode int    // -1 when it did not exit by itself
	Stderr   string // the last lines, at most 4 KiB
	Err      error
}

func (e *Error) Error() string {
	msg := strings.TrimSpace(e.Stderr)
	if msg == "" {
		msg = e.Err.Error()
	}
	return fmt.Sprintf("git %s: %s", e.Command, msg)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrTooLarge is returned by Run when a command printed more than MaxOutput.
var ErrTooLarge = errors.New("git printed too much")

// Available reports whether there is a git on the PATH.
func Available() bool {
	_, err := exec.LookPath("git")
	return err == nil
}

// Run runs a command to its end and returns its standard output (nil when Cmd.Stdout is set). When ctx ends, git and
// everything it started is terminated, then killed.
func Run(ctx context.Context, c Cmd) ([]byte, error) {
	cmd := command(ctx, c)
	var out *limitedBuffer
	if c.Stdout == nil {
		out = &limitedBuffer{max: MaxOutput}
		cmd.Stdout = out
	}
	tail := &tailBuffer{copyTo: c.Stderr}
	cmd.Stderr = tail
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, wrapError(c, cmd, tail.String(), err)
	}
	if out == nil {
		return nil, nil
	}
	if out.full {
		return nil, &Error{Command: subcommand(c), Err: ErrTooLarge}
	}
	return out.Bytes(), nil
}

// Process is a git command that is talked to, such as cat-file --batch. It is not safe for concurrent use.
type Process struct {
	In   io.WriteCloser
	Out  io.ReadCloser
	cmd  *exec.Cmd
	spec Cmd
	tail *tailBuffer
	once sync.Once
	err  error
}

// Start starts a command with pipes to its standard input and output. It ends when ctx ends or Close is called.
func Start(ctx context.Context, c Cmd) (*Process, error) {
	cmd := command(ctx, c)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", subcommand(c), err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", subcommand(c), err)
	}
	tail := &tailBuffer{copyTo: c.Stderr}
	cmd.Stderr = tail
	if err := cmd.Start(); err != nil {
		return nil, wrapError(c, cmd, "", err)
	}
	return &Process{In: in, Out: out, cmd: cmd, spec: c, tail: tail}, nil
}

// Close closes both pipes, waits for the end and returns why the command failed, if it did. A command that does not end
// by itself soon is killed. It may be called more than once.
func (p *Process) Close() error {
	p.once.Do(func() {
		_ = p.In.Close()
		_ = p.Out.Close()
		kill := time.AfterFunc(killDelay, func() { _ = killGroup(p.cmd.Process) })
		err := p.cmd.Wait()
		kill.Stop()
		if err != nil {
			p.err = wrapError(p.spec, p.cmd, p.tail.String(), err)
		}
	})
	return p.err
}

func command(ctx context.Context, c Cmd) *exec.Cmd {
	args := hardening()
	for _, dir := range c.SafeDirs {
		args = append(args, "-c", "safe.directory="+dir)
	}
	for _, kv := range c.Config {
		args = append(args, "-c", kv)
	}
	cmd := exec.CommandContext(ctx, "git", append(args, c.Args...)...)
	cmd.Dir = c.Dir
	if cmd.Dir == "" {
		cmd.Dir = string(os.PathSeparator)
	}
	cmd.Env = append(environment(os.Environ()), c.Env...)
	cmd.Stdin, cmd.Stdout = c.Stdin, c.Stdout
	cmd.Cancel = func() error { return terminateGroup(cmd.Process) }
	cmd.WaitDelay = killDelay
	ownGroup(cmd)
	return cmd
}

// hardening are the settings that no repository may change: they stand on the command line and so win.
func hardening() []string {
	return []string{
		"-c", "core.hooksPath=/dev/null",
		"-c", "core.fsmonitor=false",
		"-c", "core.askPass=",
		"-c", "credential.helper=",
		"-c", "protocol.ext.allow=never",
		"-c", "init.templateDir=",
		"-c", "gc.auto=0",
		"-c", "maintenance.auto=false",
		"-c", "submodule.recurse=false",
		"-c", "advice.detachedHead=false",
	}
}

// passed are the only variables of this process that git sees: how to find programs, proxies and certificates.
var passed = map[string]bool{
	"PATH": true, "HOME": true, "USER": true, "TMPDIR": true,
	"http_proxy": true, "https_proxy": true, "no_proxy": true, "all_proxy": true,
	"HTTPS_PROXY": true, "NO_PROXY": true, "ALL_PROXY": true,
	"SSL_CERT_FILE": true, "SSL_CERT_DIR": true, "GIT_SSL_CAINFO": true, "GIT_SSL_CAPATH": true,
	"GIT_EXEC_PATH": true,
}

func environment(host []string) []string {
	env := []string{
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_ALLOW_PROTOCOL=file:git:http:https:ssh",
		"GIT_SSH_COMMAND=ssh -oBatchMode=yes",
		"LC_ALL=C",
	}
	for _, kv := range host {
		if name, _, ok := strings.Cut(kv, "="); ok && passed[name] {
			env = append(env, kv)
		}
	}
	return env
}

func subcommand(c Cmd) string {
	if len(c.Args) == 0 {
		return ""
	}
	return c.Args[0]
}

func wrapError(c Cmd, cmd *exec.Cmd, stderr string, err error) error {
	code := -1
	if cmd.ProcessState != nil {
		code = cmd.ProcessState.ExitCode()
	}
	return &Error{Command: subcommand(c), ExitCode: code, Stderr: stderr, Err: err}
}

// limitedBuffer keeps at most max bytes and swallows the rest, so that git is never blocked.
type limitedBuffer struct {
	bytes.Buffer
	max  int
	full bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := b.max - b.Len(); len(p) > room {
		b.full = true
		b.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// ReadFrom is hidden, so that io.Copy goes through Write.
func (b *limitedBuffer) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}

// tailBuffer keeps the last 4 KiB of standard error for the error message.
type tailBuffer struct {
	mu     sync.Mutex
	buf    []byte
	copyTo io.Writer
}

const tailBytes = 4 << 10

func (t *tailBuffer) Write(p []byte) (int, error) {
	if t.copyTo != nil {
		_, _ = t.copyTo.Write(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.buf) > tailBytes {
		return string(t.buf[len(t.buf)-tailBytes:])
	}
	return string(t.buf)
}
