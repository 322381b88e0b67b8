// Package sandbox keeps the steps of a job on a machine of its own making: an agent that is a process of somebody's machine starts them
// inside, and stays outside itself with its token, its link and its git.
//
// A Box is one process of this program (Main) that lives as long as the job. It builds the sandbox around itself, is told what to start,
// and starts it; what a step leaves running goes on until the job ends, as it does without a sandbox. Two layers do the work, either of
// which the machine may refuse:
//
//   - namespaces: a user namespace without rights outside, and in it a file system of its own (only what View lists is there, the system
//     read-only), processes, System V objects and, unless the network is the machine's, a network with nothing but a loopback;
//   - Landlock: the same files by the kernel's access control, no signal and no debugger to a process outside.
//
// No new privileges and the system calls that container engines allow (seccomp) stand on top. What could not be enforced is said in the
// Report, for the job's log. Without either layer files would be open, and there is no box at all.
//
// What runs inside can do with the box's process what it likes, so nothing that it says is trusted beyond how a step ended.
package sandbox

import (
	"errors"
	"time"

	"github.com/kici-go/kici/internal/wire"
)

// Config is what a job may see and do. Paths are absolute.
type Config struct {
	Write  []string `json:"write"`            // folders and files that may be changed
	Read   []string `json:"read,omitempty"`   // further ones to be seen
	Hidden []string `json:"hidden,omitempty"` // never seen, also not below what is
	// Tmp is a folder of the job's own that stands for /tmp and /var/tmp; Root an empty one of the job's own, in which its file system is built.
	Tmp  string `json:"tmp"`
	Root string `json:"root"`
	// Network is ci.NetworkIsolated or ci.NetworkHost.
	Network string `json:"network"`
	// Capabilities are those of Linux that steps have inside ("CAP_NET_BIND_SERVICE"). They reach no further than the sandbox.
	Capabilities []string `json:"capabilities,omitempty"`
}

// Report says what a box enforces, and what it cannot.
type Report = wire.SandboxReport

// Process is one to be started inside.
type Process struct {
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	Dir  string   `json:"dir"`
	Env  []string `json:"env"`
}

// Exit is how a process inside ended.
type Exit struct {
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"` // that ended it, 0 for none
}

// Errors of a box.
var (
	// ErrUnsupported is wrapped when there can be no sandbox here.
	ErrUnsupported = errors.New("no sandbox is possible here")
	// ErrNotVisible is wrapped when a program is not there inside, or may not be used there.
	ErrNotVisible = errors.New("not visible in the sandbox")
	// ErrEnded is wrapped when the box has ended, and with it everything inside.
	ErrEnded = errors.New("the sandbox has ended")
)

// Command is the argument by which this program becomes a box (Main), and not what it is otherwise.
const Command = "sandbox-init"

// startWithin bounds how long a box may take to build itself, and to start a process.
const startWithin = 20 * time.Second
