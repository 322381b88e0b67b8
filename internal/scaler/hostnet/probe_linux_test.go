package hostnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// TestCheckLeavesNothing: it tries everything, and no table is seen before or after.
func TestCheckLeavesNothing(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	n, err := Open(Options{Namespace: ns.path(), Owner: me})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	s, err := n.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("this kernel: %+v", s)
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	if tables, err := c.ListTables(); err != nil || len(tables) != 0 {
		t.Errorf("%d tables, %v", len(tables), err)
	}
}

// TestXS76NoRight: a process without CAP_NET_ADMIN is told so, with the cure, by every call (CT-4, NET-13).
func TestXS76NoRight(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	err := ns.do(func() error {
		if err := dropCapabilities(); err != nil {
			return err
		}
		n, err := Open(Options{Owner: me}) // the thread's own namespace
		if err != nil {
			return err
		}
		_, check := n.Check(t.Context())
		for i, err := range []error{
			check, n.Ensure(t.Context(), testBridge), n.Apply(t.Context(), testBridge, rulesOf("a", "172.30.0.2")), failed(n.Sync(t.Context(), testBridge, nil)),
		} {
			if !errors.Is(err, errDenied) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// dropCapabilities takes every right from the thread.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	f := feature{cure: "CONFIG_X"}
	for name, tc := range map[string]struct {
		err  error
		is   error
		says string
	}{
		"nothing":       {nil, nil, ""},
		"no right":      {fmt.Errorf("x: %w", syscall.EPERM), errDenied, "CAP_NET_ADMIN"},
		"no family":     {fmt.Errorf("x: %w", syscall.EAFNOSUPPORT), errLacking, "CONFIG_X"},
		"no expression": {fmt.Errorf("x: %w", syscall.ENOENT), errLacking, "CONFIG_X"},
		"no meta key":   {fmt.Errorf("x: %w", syscall.EOPNOTSUPP), errLacking, "CONFIG_X"},
		"no netlink":    {os.NewSyscallError("socket", syscall.EPROTONOSUPPORT), errLacking, "CONFIG_X"},
		"no answer":     {os.ErrDeadlineExceeded, errLacking, "CONFIG_X"},
		"a whole batch": {errors.Join(syscall.EOPNOTSUPP, syscall.EOPNOTSUPP, syscall.EIO), errLacking, "(operation not supported (and 2 more errors))"},
		"no memory":     {syscall.ENOMEM, syscall.ENOMEM, "try nftables"},
	} {
		err := f.diagnose(tc.err)
		if !errors.Is(err, tc.is) || tc.says != "" && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"no owner":        {},
		"a strange owner": {Owner: "a b"},
		"a strange table": {Owner: me, Table: "a;b"},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "network isolation: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(Options{Owner: me, Namespace: "/missing"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a namespace that is not there: %v", err)
	}
}
