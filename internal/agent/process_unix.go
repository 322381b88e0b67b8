//go:build unix

package agent

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// protect hides the process. One that was started with its token in the environment, where /proc would show it for as long
// as the process lives, starts itself again with the token in a pipe.
func protect(c *Config) error {
	if err := hide(); err != nil {
		return err
	}
	if os.Getenv("KICI_AGENT_TOKEN") == "" {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	if _, err := w.WriteString(os.Getenv("KICI_AGENT_TOKEN")); err != nil { // far below a pipe's capacity
		return fmt.Errorf("hide the token: %w", err)
	}
	_ = w.Close()
	fd, err := unix.Dup(int(r.Fd())) // without close-on-exec
	if err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	env := []string{"KICI_AGENT_TOKEN_FD=" + strconv.Itoa(fd)}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "KICI_AGENT_TOKEN=") && !strings.HasPrefix(kv, "KICI_AGENT_TOKEN_FD=") {
			env = append(env, kv)
		}
	}
	return fmt.Errorf("hide the token: %w", syscall.Exec(exe, os.Args, env))
}

// signals delivers what the process is told, or what Config.Signals says.
func (a *Agent) signals() (<-chan os.Signal, func()) {
	if a.cfg.Signals != nil || !a.cfg.Process {
		return a.cfg.Signals, func() {}
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	return c, func() { signal.Stop(c) }
}

func isDrain(s os.Signal) bool { return s == syscall.SIGUSR1 }
