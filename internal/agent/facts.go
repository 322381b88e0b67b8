package agent

import (
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/wire"
)

// facts are what an agent says about its machine (AG-8).
type facts struct {
	hostname, osRelease, osVersion, user string
	uid                                  int
	memoryMb                             int64
}

func gather() facts {
	f := facts{uid: os.Getuid(), user: os.Getenv("USER")}
	f.hostname, _ = os.Hostname()
	if u, err := user.LookupId(strconv.Itoa(f.uid)); err == nil {
		f.user = u.Username
	}
	f.osRelease, f.osVersion, f.memoryMb = system()
	return f
}

func (f facts) register() wire.Register {
	return wire.Register{
		Platform: runtime.GOOS, Arch: runtime.GOARCH, Hostname: f.hostname, OSRelease: f.osRelease, OSVersion: f.osVersion,
		TotalMemoryMb: f.memoryMb, CPUCount: runtime.NumCPU(), RunningAsUser: f.user, RunningAsUID: f.uid,
	}
}

// prettyName reads PRETTY_NAME of an os-release file.
func prettyName(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}
