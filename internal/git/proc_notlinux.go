//go:build unix && !linux

package git

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
