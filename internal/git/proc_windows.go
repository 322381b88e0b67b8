package git

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func terminateGroup(p *os.Process) error { return p.Kill() }
func killGroup(p *os.Process) error      { return p.Kill() }
