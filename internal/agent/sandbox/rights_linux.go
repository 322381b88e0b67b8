package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
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
