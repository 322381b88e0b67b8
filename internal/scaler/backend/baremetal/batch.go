package baremetal

import (
	"errors"
	"fmt"
	"strings"
)

// What is Windows' own about starting and ending a program, as pure functions, so that every system tests them.

// isBatch reports whether a program is a batch file, which only cmd.exe runs.
func isBatch(path string) bool {
	lower := strings.ToLower(path)
	return strings.HasSuffix(lower, ".cmd") || strings.HasSuffix(lower, ".bat")
}

// Characters that cmd.exe takes for its own: always, and outside of quotes. A token is quoted only when it holds a blank.
const (
	neverInBatch    = `%^"`
	unquotedInBatch = `&|<>(),;=`
	blanks          = " \t"
)

// batchFault says why a batch file cannot be named to cmd.exe (BM-9); nil for everything else.
func batchFault(path string) error {
	if !isBatch(path) {
		return nil
	}
	bad := neverInBatch
	if !strings.ContainsAny(path, blanks) {
		bad += unquotedInBatch
	}
	if i := strings.IndexAny(path, bad); i >= 0 {
		return fmt.Errorf("the path of the batch file %s holds %q, which cmd.exe would take for its own: give it another name", path, path[i])
	}
	return nil
}

// batchLine is how a batch file is run (BM-8). Its input is NUL, so that cmd.exe ends at "Terminate batch job (Y/N)?", and call keeps
// the path out of the first place, where quotes would be taken off. The arguments are ours and need no quotes.
func batchLine(cmd, path string, args ...string) string {
	line := quoteBlanks(cmd) + " /d /e:on /v:off /c call " + quoteBlanks(path)
	for _, a := range args {
		line += " " + a
	}
	return line + " <NUL"
}

func quoteBlanks(token string) string {
	if strings.ContainsAny(token, blanks) {
		return `"` + token + `"`
	}
	return token
}

// cmdExe finds cmd.exe: COMSPEC where that names it, else the system's.
func cmdExe(environ []string) string {
	if spec := lookupFold(environ, "COMSPEC"); strings.EqualFold(spec[strings.LastIndexAny(spec, `\/`)+1:], "cmd.exe") {
		return spec
	}
	return system32(environ, "cmd.exe")
}

// system32 is a program of Windows itself; the PATH is not asked.
func system32(environ []string, name string) string {
	root := lookupFold(environ, "SystemRoot")
	if root == "" {
		root = `C:\Windows`
	}
	return strings.TrimRight(root, `\`) + `\System32\` + name
}

// lookupFold finds a variable of a Windows environment, whatever the case of its name.
func lookupFold(environ []string, name string) string {
	for _, kv := range environ {
		if n, value, ok := strings.Cut(kv, "="); ok && strings.EqualFold(n, name) {
			return value
		}
	}
	return ""
}

// taskkill's exit codes that are no failure.
const (
	taskkillEnded = 0
	taskkillGone  = 128 // no such process
)

// taskkillResult judges what taskkill said (BM-16): ended is false when there was nothing left to end.
func taskkillResult(code int, stderr string) (ended bool, err error) {
	switch code {
	case taskkillEnded:
		return true, nil
	case taskkillGone:
		return false, nil
	}
	said := strings.TrimSpace(stderr)
	if said == "" {
		return false, fmt.Errorf("taskkill exited with %d", code)
	}
	return false, errors.New("taskkill exited with " + fmt.Sprint(code) + ": " + bounded(said))
}

// bounded keeps a text from outside short.
func bounded(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
