package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What a process of the test binary is.
const (
	roleVariable = "KICI_TEST_ENGINES_ROLE"
	dirVariable  = "KICI_TEST_ENGINES_DIR"
	roleInit     = "init" // PID 1 of the namespaces
	roleTest     = "test"
)

// Main runs a package's tests; TestMain calls it. For root the binary runs in network, mount and process namespaces of its own, whose end
// is the end of all that was started in them. Others run as they are, and tests that need an engine skip.
func Main(m *testing.M, run func(*testing.M) int) {
	if os.Geteuid() != 0 || hasFlag("-test.list") {
		os.Exit(run(m))
	}
	switch os.Getenv(roleVariable) {
	case roleTest:
		code := run(m)
		stopEngines()
		os.Exit(code)
	case roleInit:
		os.Exit(beInit())
	}
	dir, err := os.MkdirTemp("", "kici-engines-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := inside(dir)
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// Dir is a folder for the whole run, which is removed at its end.
func Dir() string { return os.Getenv(dirVariable) }

func hasFlag(name string) bool {
	for _, a := range os.Args {
		if strings.HasPrefix(a, name) {
			return true
		}
	}
	return false
}

func again(role, dir string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roleVariable+"="+role, dirVariable+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// inside runs the binary as PID 1 of fresh namespaces.
func inside(dir string) int {
	cmd := again(roleInit, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	return exitCode(cmd.Run())
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "run the tests in namespaces:", err)
	return 1
}

// beInit sets the namespaces up, runs the tests, and reaps what engines orphan.
func beInit() int {
	if err := settle(); err != nil {
		fmt.Fprintln(os.Stderr, "set up namespaces for container engines:", err)
		return 1
	}
	cmd := again(roleTest, os.Getenv(dirVariable))
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1
		case pid == cmd.Process.Pid && status.Signaled():
			return 128 + int(status.Signal())
		case pid == cmd.Process.Pid:
			return status.ExitStatus()
		}
	}
}

func settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // engines leave state there
		return fmt.Errorf("mount /run: %w", err)
	}
	return loopbackUp()
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
