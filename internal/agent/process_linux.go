package agent

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hide keeps other processes of the same user from reading this one's memory and /proc entries (D13). A step that is root
// can read them all the same.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the agent's memory: %w", err)
	}
	return nil
}

func system() (release, version string, memoryMb int64) {
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		release = strings.TrimSpace(string(b))
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memoryMb = int64(uint64(info.Totalram) * uint64(info.Unit) >> 20) //nolint:unconvert // narrower on 32-bit machines
	}
	return release, prettyName("/etc/os-release"), memoryMb
}

// memory is what this process uses and what the machine has to give, in MiB.
func memory() (used, available int64) {
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			used = pages * int64(os.Getpagesize()) >> 20
		}
	}
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return used, 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return used, kb >> 10
		}
	}
	return used, 0
}
