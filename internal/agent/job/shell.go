package job

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// shell is how a script becomes a command.
type shell struct {
	argv   []string // "{0}" stands for the script's file, also inside an element
	ext    string
	before string // put before and after the script
	after  string
}

const (
	psBefore = "$ErrorActionPreference = 'stop'\n"
	psAfter  = "\nif ((Test-Path -LiteralPath variable:\\LASTEXITCODE)) { exit $LASTEXITCODE }\n"
)

var shells = map[string]shell{
	"bash":       {argv: []string{"bash", "--noprofile", "--norc", "-eo", "pipefail", "{0}"}, ext: ".sh"},
	"sh":         {argv: []string{"sh", "-e", "{0}"}, ext: ".sh"},
	"python":     {argv: []string{"python3", "{0}"}, ext: ".py"},
	"pwsh":       {argv: []string{"pwsh", "-NoProfile", "-NonInteractive", "-Command", ". '{0}'"}, ext: ".ps1", before: psBefore, after: psAfter},
	"powershell": {argv: []string{"powershell", "-NoProfile", "-NonInteractive", "-Command", ". '{0}'"}, ext: ".ps1", before: psBefore, after: psAfter},
	"cmd":        {argv: []string{"cmd", "/D", "/E:ON", "/V:OFF", "/S", "/C", "CALL \"{0}\""}, ext: ".cmd"},
}

// shellOf picks the shell of a step. Without one it is bash, or sh where there is no bash.
func (j *Job) shellOf(s lock.Step, env expr.Env, environ []string) (shell, error) {
	name := ""
	for _, n := range []string{s.Shell, j.def.Defaults.Shell, j.defs.Shell} {
		if n != "" {
			name = n
			break
		}
	}
	name, err := expr.Interpolate(name, env)
	if err != nil {
		return shell{}, fmt.Errorf("shell: %w", err)
	}
	name = strings.TrimSpace(name)
	if name == "" {
		return defaultShell(environ), nil
	}
	sh, ok := shells[name]
	if !ok {
		return customShell(name)
	}
	if name == "python" && missing(sh.argv[0], environ) {
		sh.argv = []string{"python", "{0}"}
	}
	return sh, nil
}

func defaultShell(environ []string) shell {
	candidates := []string{"bash", "sh"}
	if runtime.GOOS == "windows" {
		candidates = []string{"pwsh", "powershell", "cmd"}
	}
	for _, name := range candidates {
		if !missing(name, environ) {
			return shells[name]
		}
	}
	return shells[candidates[len(candidates)-1]]
}

func missing(program string, environ []string) bool {
	_, err := exec.LookPath(program, environ)
	return err != nil
}

var errTemplate = errors.New("a shell is one of bash, sh, python, pwsh, or a command with {0} for the script's file")

// customShell is a template such as "perl {0}". Words are divided at blanks; quotes have no meaning.
func customShell(template string) (shell, error) {
	argv := strings.Fields(template)
	if len(argv) < 2 || !strings.Contains(template, "{0}") {
		return shell{}, fmt.Errorf("shell %q: %w", template, errTemplate)
	}
	return shell{argv: argv, ext: ".script"}, nil
}

// writeScript puts the script into a file outside the workspace and returns the command.
func (j *Job) writeScript(sh shell, index int, text string) (argv []string, file string, err error) {
	file = j.path("temp", "step-"+strconv.Itoa(index)+sh.ext)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if sh.ext == ".cmd" {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if err := os.WriteFile(file, []byte(sh.before+text+sh.after), 0o700); err != nil {
		return nil, "", fmt.Errorf("write the step's script: %w", err)
	}
	for _, a := range sh.argv {
		argv = append(argv, strings.ReplaceAll(a, "{0}", file))
	}
	return argv, file, nil
}
