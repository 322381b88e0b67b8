package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	profile "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/ci"
)

// lastCapability of this kernel.
func lastCapability() int {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if n, perr := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && perr == nil && n < 64 {
		return n
	}
	return len(ci.Capabilities) - 1
}

// limitRights leaves to this thread, and to what it starts, the capabilities of the list and no other, ever.
func limitRights(keep []string, namespaces bool) error {
	if !namespaces {
		if len(keep) > 0 {
			return fmt.Errorf("%s cannot be given without a user namespace", strings.Join(keep, ", "))
		}
		return nil // it has none
	}
	var bits uint64
	for _, name := range keep {
		n := slices.Index(ci.Capabilities, name)
		if n < 0 || n > lastCapability() {
			return fmt.Errorf("%s: this kernel does not know it", name)
		}
		bits |= 1 << n
	}
	for n := range lastCapability() + 1 {
		if bits&(1<<n) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
			return fmt.Errorf("give up %s: %w", ci.Capabilities[min(n, len(ci.Capabilities)-1)], err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		half := uint32(bits >> (32 * i))
		data[i] = unix.CapUserData{Effective: half, Permitted: half, Inheritable: half}
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	for n := range 64 {
		if bits&(1<<n) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(n), 0, 0); err != nil {
			return fmt.Errorf("keep %s: %w", ci.Capabilities[n], err)
		}
	}
	return nil
}

// Versions of Landlock's interface.
const (
	landlockRefer = 2 // files may move between folders
	landlockTCP   = 4
	landlockIoctl = 5
	landlockScope = 6 // signals, and sockets without a place in the file system
	landlockMost  = 7 // the last one that this was tried with
)

// landlock restricts this thread to the view.
func (c Config) landlock(view []entry, namespaces bool, r *Report) error {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		if !namespaces {
			return fmt.Errorf("the kernel has no Landlock (%v)", err)
		}
		r.Missing = append(r.Missing, "files are kept by the file system alone: the kernel has no Landlock")
		return nil
	}
	config := landlock.V7
	closed := c.Network == NetworkIsolated && !namespaces
	if !closed {
		config.HandledAccessNet = 0
	}
	fd, flags, err := config.BestEffort().NewRulesetFD(c.rules(view, namespaces, abi)...)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	r.Enforced = append(r.Enforced, fmt.Sprintf("files of others closed by Landlock (version %d)", min(abi, landlockMost)))
	switch {
	case closed && abi >= landlockTCP:
		r.Enforced = append(r.Enforced, "no TCP connections")
		r.Missing = append(r.Missing, "other networking than TCP is open")
	case closed:
		r.Missing = append(r.Missing, "the network is open")
	}
	if abi < landlockScope && !namespaces {
		r.Missing = append(r.Missing, "processes of this user outside can be signalled")
	}
	return nil
}

// rules are the view as Landlock has it. In namespaces there is nothing else than the view, so all of it may be read.
func (c Config) rules(view []entry, namespaces bool, abi int) []landlock.Rule {
	var out []landlock.Rule
	add := func(path string, write bool, hidden []string) {
		for _, p := range split(path, hidden, os.ReadDir) {
			out = append(out, ruleOf(p, write, abi))
		}
	}
	if namespaces {
		add("/", false, nil)
		for _, e := range view {
			if e.write && e.link == "" {
				add(e.path, true, nil)
			}
		}
		for _, d := range []string{"/dev", "/tmp", "/var/tmp", "/run", "/proc"} {
			add(d, true, nil)
		}
		return out
	}
	for _, e := range view {
		if e.link == "" { // what a link leads to is there by its own name
			add(e.path, e.write, c.hidden())
		}
	}
	for _, d := range append(slices.Clone(devices), c.Tmp, "/proc") { // in /proc, what is not one's own is closed by its owner
		add(d, true, nil)
	}
	add("/sys", false, nil)
	return out
}

func ruleOf(path string, write bool, abi int) landlock.Rule {
	info, err := os.Stat(path)
	isDir := err == nil && info.IsDir()
	var rule landlock.FSRule
	switch {
	case isDir && write:
		rule = landlock.RWDirs(path)
		if abi >= landlockRefer {
			rule = rule.WithRefer()
		}
	case isDir:
		rule = landlock.RODirs(path)
	case write:
		rule = landlock.RWFiles(path)
	default:
		rule = landlock.ROFiles(path)
	}
	if abi >= landlockIoctl && isDevice(path) {
		rule = rule.WithIoctlDev()
	}
	return rule.IgnoreIfMissing()
}

// filterCalls allows this thread the system calls that container engines allow.
func filterCalls(capabilities []string) error {
	policy, err := policyFor(capabilities)
	if err != nil {
		return err
	}
	return seccomp.LoadFilter(seccomp.Filter{Policy: policy})
}

// policyFor is the default profile of container engines, with these capabilities, for this machine's architecture.
func policyFor(capabilities []string) (seccomp.Policy, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return seccomp.Policy{}, err
	}
	calls, err := profile.GetDefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: capabilities}}})
	if err != nil {
		return seccomp.Policy{}, err
	}
	always, sometimes := seccomp.SyscallGroup{Action: seccomp.ActionAllow}, seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	var refused []seccomp.SyscallGroup
	for _, call := range calls.Syscalls {
		for _, name := range call.Names {
			_, known := machine.SyscallNames[name]
			switch {
			case !known || slices.Contains(always.Names, name):
			case call.Action == specs.ActErrno && call.ErrnoRet != nil:
				refused = append(refused, seccomp.SyscallGroup{Names: []string{name}, Action: seccomp.ActionErrno | seccomp.Action(*call.ErrnoRet)})
			case call.Action != specs.ActAllow:
				return seccomp.Policy{}, fmt.Errorf("the profile has the action %s", call.Action)
			case len(call.Args) == 0:
				always.Names = append(always.Names, name)
			default:
				conditions, err := conditionsOf(call.Args)
				if err != nil {
					return seccomp.Policy{}, err
				}
				sometimes.NamesWithCondtions = append(sometimes.NamesWithCondtions, seccomp.NameWithConditions{Name: name, Conditions: conditions})
			}
		}
	}
	groups := append([]seccomp.SyscallGroup{always, sometimes}, refused...)
	return seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: groups}, nil
}

func conditionsOf(args []specs.LinuxSeccompArg) (out seccomp.ArgumentConditions, err error) {
	operations := map[specs.LinuxSeccompOperator]seccomp.Operation{
		specs.OpEqualTo: seccomp.Equal, specs.OpNotEqual: seccomp.NotEqual, specs.OpLessThan: seccomp.LessThan, specs.OpLessEqual: seccomp.LessOrEqual,
		specs.OpGreaterThan: seccomp.GreaterThan, specs.OpGreaterEqual: seccomp.GreaterOrEqual,
	}
	for _, a := range args {
		op, ok := operations[a.Op]
		if a.Op == specs.OpMaskedEqual && a.ValueTwo == 0 { // none of these bits
			op, ok = seccomp.BitsNotSet, true
		}
		if !ok {
			return nil, fmt.Errorf("the profile has the condition %s", a.Op)
		}
		out = append(out, seccomp.Condition{Argument: uint32(a.Index), Operation: op, Value: a.Value})
	}
	return out, nil
}
