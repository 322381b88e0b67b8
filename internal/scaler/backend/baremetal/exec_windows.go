package baremetal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// system holds agents together by job objects: what an agent starts is in its own as well, whatever becomes of its parents. A job
// object has a name as long as somebody has a handle to it, so its agent inherits one and keeps it while it lives.
type system struct{ jobs map[string]windows.Handle } // guarded by mu of agents

func (a *agents) openSystem() { a.jobs = map[string]windows.Handle{} }

// closeSystem lets go; agents keep their own handles.
func (a *agents) closeSystem() {
	for id, j := range a.jobs {
		_ = windows.CloseHandle(j)
		delete(a.jobs, id)
	}
}

func (b *Backend) goos() string { return "Windows" }

// killedCode is the exit code of what is ended with its job object.
const killedCode = 137

// exec starts a process in its job object, not detached and with a hidden console, so that batch files have one to write to (BM-10).
func (b *Backend) exec(id string, _ *record, l launch, o outputs) (pid int, err error) {
	job, err := b.job(id)
	if err != nil {
		return 0, err
	}
	handles := []syscall.Handle{syscall.Handle(job), syscall.Handle(o.token.Fd())}
	for _, h := range handles {
		if err := windows.SetHandleInformation(windows.Handle(h), windows.HANDLE_FLAG_INHERIT, windows.HANDLE_FLAG_INHERIT); err != nil {
			return 0, fmt.Errorf("hand over a handle: %w", err)
		}
	}
	cmd := exec.Cmd{
		Path: l.path, Args: l.args, Env: tokenHandle(l.env, o.token.Fd()), Dir: l.dir, Stdout: o.out, Stderr: o.out,
		SysProcAttr: &syscall.SysProcAttr{
			HideWindow: true, CmdLine: l.line, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED, AdditionalInheritedHandles: handles,
		},
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	if err := enter(job, pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return 0, err
	}
	return pid, cmd.Process.Release()
}

// tokenHandle says in an environment where the token comes from.
func tokenHandle(env []string, handle uintptr) []string {
	out := make([]string, len(env))
	for i, kv := range env {
		if strings.HasPrefix(kv, tokenVariable+"=") {
			kv = tokenVariable + "=" + strconv.FormatUint(uint64(handle), 10)
		}
		out[i] = kv
	}
	return out
}

// enter puts a suspended process into a job object and lets it go on.
func enter(job windows.Handle, pid int) error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, uint32(pid))
	if err != nil {
		return fmt.Errorf("open the agent's process: %w", err)
	}
	defer func() { _ = windows.CloseHandle(p) }()
	if err := windows.AssignProcessToJobObject(job, p); err != nil {
		return fmt.Errorf("put the agent into its job object: %w", err)
	}
	if status, _, _ := windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess").Call(uintptr(p)); status != 0 {
		return fmt.Errorf("let the agent go on: %w", windows.NTStatus(status))
	}
	return nil
}

func (b *Backend) jobName(id string) (*uint16, error) {
	return windows.UTF16PtrFromString(`Local\kici-` + short(b.host.NodeID) + "-" + id)
}

// job makes an agent's job object, or opens the one there is.
func (b *Backend) job(id string) (windows.Handle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j, ok := b.jobs[id]; ok {
		return j, nil
	}
	name, err := b.jobName(id)
	if err != nil {
		return 0, err
	}
	j, err := windows.CreateJobObject(nil, name)
	if j == 0 {
		return 0, fmt.Errorf("make a job object: %w", err)
	}
	b.jobs[id] = j
	return j, nil
}

const jobObjectTerminate = 0x8

// endLeft ends everything in the agent's job object, also what nobody is the parent of any more.
func (b *Backend) endLeft(_ context.Context, id string, _ record) (found bool, err error) {
	b.mu.Lock()
	j, ok := b.jobs[id]
	delete(b.jobs, id)
	b.mu.Unlock()
	if !ok {
		name, err := b.jobName(id)
		if err != nil {
			return false, err
		}
		h, _, _ := windows.NewLazySystemDLL("kernel32.dll").NewProc("OpenJobObjectW").Call(jobObjectTerminate, 0, uintptr(unsafe.Pointer(name)))
		if h == 0 {
			return false, nil // it went with its last process
		}
		j = windows.Handle(h)
	}
	err = windows.TerminateJobObject(j, killedCode)
	return false, errors.Join(err, windows.CloseHandle(j)) // whether something was in it is not known
}

// terminateWithin bounds taskkill.
const terminateWithin = 10 * time.Second

// terminate ends an agent with its children by taskkill (BM-16); there is no gentle way. What the agent's exit shows is not touched
// any more (BM-17).
func (b *Backend) terminate(ctx context.Context, p *process, _ record, _ time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, terminateWithin)
	defer cancel()
	if p.gone() {
		return nil
	}
	var said strings.Builder
	cmd := exec.CommandContext(ctx, system32(os.Environ(), "taskkill.exe"), "/T", "/F", "/PID", strconv.Itoa(p.pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true}
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if exit, failed := errors.AsType[*exec.ExitError](err); err == nil || failed {
		code := 0
		if failed {
			code = exit.ExitCode()
		}
		_, err = taskkillResult(code, said.String())
	}
	if err != nil && !p.gone() {
		return fmt.Errorf("end process %d: %w", p.pid, err)
	}
	if !p.wait(killPatience, nil) {
		return fmt.Errorf("process %d does not die", p.pid)
	}
	return nil
}
