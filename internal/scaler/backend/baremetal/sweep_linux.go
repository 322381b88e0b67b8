package baremetal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/service"
)

// Where an agent had no cgroup, what it left behind is found by the mark in its environment. Every process found is stopped at
// once and the table is walked again until nothing new turns up; a stopped process cannot fork its way out, so this ends. One
// walk can miss a chain whose every member forks the next and goes, so several in a row must find nothing.
const emptyWalks = 6

// sweep kills every process that carries the agent's mark. found says that there was one.
func sweep(ctx context.Context, agent string) (found bool, err error) {
	mark := []byte(markName + "=" + agent)
	for {
		stopped := map[int]int{} // pid → pidfd
		for empty := 0; empty < emptyWalks; {
			empty++
			eachMarked(mark, func(pid, fd int) (keep bool) {
				if _, known := stopped[pid]; known || exited(fd) {
					return false
				}
				_ = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
				stopped[pid] = fd
				empty = 0
				return true
			})
			if ctx.Err() != nil {
				break // kill what is stopped all the same
			}
		}
		if len(stopped) == 0 {
			return found, nil
		}
		found = true
		for _, fd := range stopped {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		err := awaitExits(ctx, stopped)
		for _, fd := range stopped {
			_ = unix.Close(fd)
		}
		if err != nil {
			return true, err
		}
	}
}

// eachMarked calls fn for every process with the mark. The pidfd is opened before the environment is read, so what fn signals
// is what was looked at. fn keeps the descriptor when it returns true.
func eachMarked(mark []byte, fn func(pid, fd int) bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if !carries(pid, mark) || !fn(pid, fd) {
			_ = unix.Close(fd)
		}
	}
}

func carries(pid int, mark []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(kv, mark) {
			return true
		}
	}
	return false
}

func exited(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

func awaitExits(ctx context.Context, fds map[int]int) error {
	for pid, fd := range fds {
		for pause := time.Millisecond; !exited(fd); pause = min(2*pause, 50*time.Millisecond) {
			if err := service.Sleep(ctx, pause); err != nil {
				return fmt.Errorf("process %d does not die: %w", pid, err)
			}
		}
		// A child of ours must be reaped; for anybody else's this is ECHILD.
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.ECHILD) {
			return fmt.Errorf("reap process %d: %w", pid, err)
		}
	}
	return nil
}
