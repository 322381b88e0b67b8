package service

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// GiveBack drops what an idle process does not need: free heap, and the pages of its own executable that were read at start.
// The kernel reads them again from its cache when they are touched.
func GiveBack() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	for _, m := range cleanMappings(f, exe) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

type mapping struct{ start, end uintptr }

// cleanMappings are the private mappings of a file that cannot be written and hold nothing but the file: no page of them
// would be lost.
func cleanMappings(smaps *os.File, file string) []mapping {
	var out []mapping
	var cur *mapping
	var clean bool
	flush := func() {
		if cur != nil && clean {
			out = append(out, *cur)
		}
		cur = nil
	}
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		line := lines.Text()
		if m, ok := readOnlyMapping(line, file); ok {
			flush()
			cur, clean = &m, true
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(key, " -") { // the header of another mapping
			flush()
			continue
		}
		// Not Private_Dirty, which also counts pages of a file that was written a moment ago.
		if (key == "Anonymous" || key == "Swap") && strings.Fields(value)[0] != "0" {
			clean = false
		}
	}
	flush()
	return out
}

// readOnlyMapping reads a header "start-end perms offset dev inode path" of the file.
func readOnlyMapping(line, file string) (mapping, bool) {
	f := strings.Fields(line)
	if len(f) < 6 || !strings.HasSuffix(line, " "+file) || len(f[1]) != 4 || f[1][0] != 'r' || f[1][1] != '-' || f[1][3] != 'p' {
		return mapping{}, false
	}
	from, to, _ := strings.Cut(f[0], "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if err1 != nil || err2 != nil || end <= start {
		return mapping{}, false
	}
	return mapping{uintptr(start), uintptr(end)}, true
}
