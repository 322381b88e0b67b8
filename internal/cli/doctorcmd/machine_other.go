//go:build !linux

package doctorcmd

import "github.com/kici-go/kici/internal/diagnose"

func killMethod() diagnose.Finding {
	return diagnose.Warned("run agents on Linux where strays matter", "this system has no cgroups; a step's process group is ended, and no more")
}

func openFiles() diagnose.Finding { return diagnose.Skipped("not asked on this system") }
