package hostnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network of its own. It is gone with the file, also when the test is killed.
type namespace struct{ *os.File }

// lacks skips a test, or fails it where KICI_TEST_REQUIRE says that this machine must be able to run it.
func lacks(t *testing.T, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "netns") {
		t.Fatalf("%s, and KICI_TEST_REQUIRE names netns", why)
	}
	t.Skip("needs root, network namespaces and iproute2: " + why)
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		lacks(t, err.Error())
	}
	var f *os.File
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EINVAL) {
		lacks(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	ns := namespace{f}
	ns.ip(t, "link set lo up")
	return ns
}

// onThread runs f on an operating-system thread that ends with it, so that what f does to the thread stays there.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// do runs f inside. Sockets that f opens, and programs that it starts, belong to the namespace.
func (ns namespace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func (ns namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }

// ip runs the ip command inside.
func (ns namespace) ip(t *testing.T, format string, args ...any) {
	t.Helper()
	command := fmt.Sprintf(format, args...)
	err := ns.do(func() error {
		out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (ns namespace) sysctl(t *testing.T, name, value string) {
	t.Helper()
	err := ns.do(func() error {
		return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) //nolint:gosec // it is there
	})
	if err != nil {
		lacks(t, err.Error())
	}
}
