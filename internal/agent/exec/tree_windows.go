package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

const walkMethod = MethodJob

func becomeSubreaper() {}

// group is the cgroup of other systems.
type group struct{ path string }

func newGroup(string) (*group, error)       { return nil, errors.New("no cgroups on this system") }
func (*group) remove(context.Context) error { return nil }
func (*group) enter(int, int) error         { return nil }

func signalName(int) string { return "" }

// held are the job objects of a tree, by step. What a process starts is in its job object too, whatever it does. They end with this
// process: its handles are the only ones, and closing the last one kills.
type held struct{ jobs map[int]windows.Handle }

// killedCode is the exit code of what a job object ends, as after SIGKILL elsewhere.
const killedCode = 137

func (t *Tree) attributes(int) (*syscall.SysProcAttr, func(), error) {
	// Suspended, so that it starts nothing before it is in its job object.
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}, func() {}, nil
}

// begun puts a suspended process into its step's job object and lets it go on; the tree's mu is held.
func (h *held) begun(cmd *osexec.Cmd, step int) error {
	err := h.begin(cmd.Process.Pid, step)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

func (h *held) begin(pid, step int) error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, uint32(pid))
	if err != nil {
		return fmt.Errorf("open the step's process: %w", err)
	}
	defer func() { _ = windows.CloseHandle(p) }()
	job, err := h.job(step)
	if err != nil {
		return err
	}
	if err := windows.AssignProcessToJobObject(job, p); err != nil {
		return fmt.Errorf("put the step into its job object: %w", err)
	}
	if status, _, _ := resumeProcess().Call(uintptr(p)); status != 0 {
		return fmt.Errorf("let the step go on: %w", windows.NTStatus(status))
	}
	return nil
}

func resumeProcess() *windows.LazyProc {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")
}

// job returns a step's job object; the tree's mu is held.
func (h *held) job(step int) (windows.Handle, error) {
	if j, ok := h.jobs[step]; ok {
		return j, nil
	}
	j, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("make a job object: %w", err)
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(j, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		return 0, errors.Join(fmt.Errorf("set up a job object: %w", err), windows.CloseHandle(j))
	}
	if h.jobs == nil {
		h.jobs = map[int]windows.Handle{}
	}
	h.jobs[step] = j
	return j, nil
}

// kill ends everything of a step, or of all; the next process of the step gets a new job object.
func (t *Tree) kill(step int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	for s, j := range t.held.jobs {
		if step == anyStep || s == step {
			err = errors.Join(err, windows.TerminateJobObject(j, killedCode), windows.CloseHandle(j))
			delete(t.held.jobs, s)
		}
	}
	return err
}

// Terminate ends the step; Windows has no gentle way that reaches every program.
func (t *Tree) Terminate(step int) { _ = t.kill(step) }

// KillStep kills every process of a step.
func (t *Tree) KillStep(_ context.Context, step int) error { return t.kill(step) }

// Kill kills every process of the job.
func (t *Tree) Kill(context.Context) error { return t.kill(anyStep) }

func (t *Tree) reapOrphans() func() { return func() {} }

func signalOf(*os.ProcessState) (string, int) { return "", 0 }

// executable reports whether a file can be started; its name says so.
func executable(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = errors.New("is a directory")
	}
	return err
}

// candidates are the names under which a program without an extension is looked for.
func candidates(name string, env []string) []string {
	if filepath.Ext(name) != "" {
		return []string{name}
	}
	list := variable(env, "PATHEXT")
	if list == "" {
		list = ".COM;.EXE;.BAT;.CMD"
	}
	var out []string
	for ext := range strings.SplitSeq(list, ";") {
		out = append(out, name+strings.ToLower(ext))
	}
	return out
}

// sameName compares names of variables.
func sameName(a, b string) bool { return strings.EqualFold(a, b) }

// StartTime identifies a process together with its pid: when it was created, in 100 ns; 0 when there is none.
func StartTime(pid int) uint64 {
	p, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0
	}
	defer func() { _ = windows.CloseHandle(p) }()
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(p, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	return uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime)
}

// CleanUp removes the state file: what the agent held ended with it.
func CleanUp(_ context.Context, stateFile string) error { return os.Remove(stateFile) }
