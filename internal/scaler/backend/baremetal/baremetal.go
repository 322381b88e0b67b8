// Package baremetal starts agents as processes of this machine (spec BM). An agent is found again by evidence: its directory
// below the data directory, its pid with start time and boot id, and the cgroup leaf it was started in. It outlives the
// orchestrator; nothing is ever signalled whose identity is not proven.
package baremetal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Type is the backend's type in scalers.yaml.
const Type = "bare-metal"

// Keys of scalers.yaml.
const (
	keyRunAs     = "runAs"
	keyAllowRoot = "allowRoot"
	keyCgroups   = "enforceCgroups"
	keyTasks     = "maxTasks"
	keyWorkDir   = "workDir"
	keySandbox   = "sandbox"
	keyNetwork   = "sandboxNetwork"
	keyPaths     = "sandboxPaths"
	keyBinary    = "binaryPath"
	keyImage     = "image"
)

// Kind plugs the backend in.
func Kind() backend.Kind { return kind(realFacts()) }

func kind(f facts) backend.Kind {
	return backend.Kind{
		Type: Type, HostPlatform: true,
		Keys: []backend.Key{
			{Name: keyRunAs, Type: backend.KeyString, Doc: "user name or uid that agents run as; needs a root server"},
			{Name: keyAllowRoot, Type: backend.KeyBool, Doc: "a root server may run agents as root"},
			{Name: keyCgroups, Type: backend.KeyBool, Doc: "enforce the cpu and memory limits of jobs, and a bound on their processes"},
			{Name: keyTasks, Type: backend.KeyInt, Doc: "processes and threads of one agent at once, when limits are enforced; 4096"},
			{Name: keyWorkDir, Type: backend.KeyString, Doc: "absolute folder for agents' workspaces"},
			{Name: keySandbox, Type: backend.KeyBool, Doc: "steps see their workspace and a read-only system, and nothing else of this machine"},
			{Name: keyNetwork, Type: backend.KeyString, Doc: "network of the sandbox: isolated (nothing but a loopback) or host (this machine's); isolated"},
			{Name: keyPaths, Type: backend.KeyStrings, Doc: "further absolute paths that are seen in the sandbox; PATH:rw may be written"},
		},
		SetKeys: []backend.Key{
			{Name: keyBinary, Type: backend.KeyString, Doc: "agent executable; this one when it is not set"},
			{Name: keyImage, Type: backend.KeyString, Doc: "refused: use a scaler of type container"},
		},
		Check: func(e backend.Entry) []backend.Fault { return check(e, f) },
		New: func(e backend.Entry, h backend.Host) (backend.Backend, error) {
			b, err := open(e, h, f)
			if err != nil {
				return nil, err
			}
			return b, nil
		},
	}
}

// Bounds of maxTasks: an agent with a shell has some twenty, and a kernel has no more than four million numbers.
const (
	defaultTasks = 4096
	minTasks     = 64
	mostTasks    = 1 << 22
)

// facts are what checks know of the host.
type facts struct {
	uid    int // of this process; -1 where there are none
	goos   string
	lookup func(name string) (*account, error)
	stat   func(path string) (fs.FileInfo, error)
}

func realFacts() facts {
	return facts{uid: os.Geteuid(), goos: runtime.GOOS, lookup: lookupAccount, stat: os.Stat}
}

// account is a user that agents run as.
type account struct {
	name, home string
	uid, gid   uint32
	groups     []uint32
}

func lookupAccount(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if _, numeric := strconv.Atoi(name); numeric != nil {
			return nil, err
		}
		if u, err = user.LookupId(name); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s has no numeric id", name)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s has no numeric group", name)
	}
	a := &account{name: u.Username, home: u.HomeDir, uid: uint32(uid), gid: uint32(gid)}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", name, err)
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			a.groups = append(a.groups, uint32(n))
		}
	}
	return a, nil
}

// check finds what is wrong with an entry on this host.
func check(e backend.Entry, f facts) []backend.Fault {
	var out []backend.Fault
	fault := func(key, cure, format string, args ...any) {
		out = append(out, backend.Fault{Key: key, Message: fmt.Sprintf(format, args...), Cure: cure})
	}
	if _, err := identity(e, f); err != nil {
		key := keyRunAs
		if e.Options.String(keyRunAs) == "" {
			key = keyAllowRoot
		}
		out = append(out, backend.Fault{Key: key, Message: err.Error()})
	}
	if d := e.Options.String(keyWorkDir); d != "" && !filepath.IsAbs(d) {
		fault(keyWorkDir, "", "must be an absolute path")
	}
	if e.Options.Bool(keyCgroups) && f.goos != "linux" {
		out = append(out, backend.Fault{Key: keyCgroups, Warning: true, Message: "does nothing on this system: cpu and memory limits are enforced on Linux only"})
	}
	if f.goos == "windows" && e.Options.String(keyRunAs) != "" {
		fault(keyRunAs, "remove it", "agents run as the server's own user on Windows")
	}
	if n := e.Options.Int(keyTasks); n != 0 && (n < minTasks || n > mostTasks) {
		fault(keyTasks, "", "must be between %d and %d", minTasks, mostTasks)
	}
	if e.Options.Int(keyTasks) != 0 && !e.Options.Bool(keyCgroups) {
		out = append(out, backend.Fault{Key: keyTasks, Warning: true, Message: "does nothing without enforceCgroups"})
	}
	out = append(out, checkSandbox(e, f)...)
	for i, s := range e.Sets {
		if s.Options.String(keyImage) != "" {
			fault(backend.SetKey(i, keyImage), "move the label set to a scaler of type container; without image it runs there only jobs that name their own (container:)",
				"agents of bare-metal are processes and run in no image")
		}
		if path := s.Options.String(keyBinary); path != "" {
			if err := f.program(path); err != nil {
				fault(backend.SetKey(i, keyBinary), "without binaryPath kici is its own agent", "%v", err)
			}
		}
		for name := range s.Env {
			if ownNames[name] {
				fault(backend.SetKey(i, "env"), "remove it", "%s is set by kici and cannot be changed", name)
			}
		}
	}
	return out
}

// identity decides which user agents run as; nil is the server's own (D14).
func identity(e backend.Entry, f facts) (*account, error) {
	name, root := e.Options.String(keyRunAs), e.Options.Bool(keyAllowRoot)
	if e.Retiring {
		return nil, nil
	}
	if name == "" {
		if f.uid == 0 && !root {
			return nil, errors.New("the server runs as root and would run jobs as root: set runAs to a user, or allowRoot to true")
		}
		return nil, nil
	}
	a, err := f.lookup(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("runAs %q: %w", name, err)
	case a.uid == 0 && !root:
		return nil, fmt.Errorf("runAs %q is root: set allowRoot to true if that is meant", name)
	case f.uid != 0 && int(a.uid) != f.uid:
		return nil, fmt.Errorf("runAs %q: only a server that runs as root can run agents as another user", name)
	case int(a.uid) == f.uid:
		return nil, nil
	}
	return a, nil
}

// program checks an agent's executable. Windows knows them by their names, and refuses batch files that cmd.exe would misread (BM-9).
func (f facts) program(path string) error {
	if !filepath.IsAbs(path) {
		return errors.New("must be an absolute path")
	}
	if f.goos == "windows" {
		if err := batchFault(path); err != nil {
			return err
		}
	}
	info, err := f.stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir() || f.goos != "windows" && info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}
