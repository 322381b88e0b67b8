package git

import "syscall"

// dieWithParent lets the kernel kill git when this process dies by SIGKILL. It fires on the end of the parent's thread;
// the Go runtime ends a thread only when a goroutine returns while locked to it, which nothing here does.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
