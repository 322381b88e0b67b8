package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// HookOptions say how a repository's hooks reach kici.
type HookOptions struct {
	Kici       string // the executable; the hook falls back to kici on the PATH
	URL        string // webhook address of the source
	SecretFile string // what deliveries are signed with; "" is kici-secret in the git directory
	Secret     string // written into SecretFile with mode 0600; "" leaves the file alone
	Chain      bool   // keep a hook of somebody else's and run it first, instead of refusing
}

// Hook is one hook file.
type Hook struct{ Name, Text string }

// hookMarker tells our hooks from others'.
const hookMarker = "# kici-hook 1"

const chainedSuffix = ".before-kici"

// Hooks returns the hook files of a bare repository, which only gets pushes, or of one with a work tree, in which people also
// commit, merge and rebase. They need nothing but a shell, git and kici, and never make a push or a commit fail.
func Hooks(bare bool, o HookOptions) []Hook {
	hooks := []Hook{{"post-receive", o.script(`input=$(cat)`)}}
	if bare {
		return hooks
	}
	changed := `input=
ref=$(git symbolic-ref -q HEAD) && new=$(git rev-parse -q --verify HEAD) && {
  old=$(git rev-parse -q --verify "$ref@{1}" 2>/dev/null) || old=0000000000000000000000000000000000000000
  input="$old $new $ref"
}`
	return append(hooks,
		Hook{"post-commit", o.script(changed)},
		Hook{"post-merge", o.script(changed)},
		Hook{"post-rewrite", o.script(`[ "$1" = rebase ] || exit 0` + "\n" + changed)}, // an amend is a post-commit already
	)
}

func (o HookOptions) script(input string) string {
	return `#!/bin/sh
` + hookMarker + `: tells kici what was pushed or committed. Written by "kici source install-hook".
status=0
` + input + `
if [ -x "$0` + chainedSuffix + `" ]; then
  printf '%s\n' "$input" | "$0` + chainedSuffix + `" "$@" || status=$?
fi
kici=` + quote(o.Kici) + `
[ -x "$kici" ] || kici=kici
[ -z "$input" ] || printf '%s\n' "$input" |
  "$kici" webhook send --hook --url ` + quote(o.URL) + ` --secret-file ` + quote(o.SecretFile) + ` || :
exit $status
`
}

// quote makes one shell word of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ErrForeignHook is returned when a hook of somebody else's is in the way.
var ErrForeignHook = errors.New("there is a hook already")

// InstallHooks writes the hooks into the repository at dir and returns the files it wrote. Ours are replaced; a hook of
// somebody else's is kept beside ours and run first when o.Chain is set, else nothing is written and the error says what to do.
func InstallHooks(ctx context.Context, dir string, o HookOptions) ([]string, error) {
	repo := &Repo{path: filepath.Clean(dir)}
	gitDir, bare, err := repo.gitDir()
	if err != nil {
		return nil, err
	}
	common, err := commonDir(ctx, gitDir)
	if err != nil {
		return nil, err
	}
	if o.SecretFile == "" {
		o.SecretFile = filepath.Join(common, "kici-secret")
	}
	into, err := hooksDir(ctx, common, repo.path, bare)
	if err != nil {
		return nil, err
	}
	hooks := Hooks(bare, o)
	foreign := map[string]bool{}
	for _, h := range hooks {
		if foreign[h.Name], err = isForeign(filepath.Join(into, h.Name)); err != nil {
			return nil, err
		}
		if foreign[h.Name] && !o.Chain {
			return nil, fmt.Errorf("%w: %s. To keep it and run it before kici's, install with --chain; or add this line to it: %s webhook send --hook --url %s --secret-file %s",
				ErrForeignHook, filepath.Join(into, h.Name), o.Kici, quote(o.URL), quote(o.SecretFile))
		}
	}
	if o.Secret != "" {
		if err := replaceFile(o.SecretFile, o.Secret+"\n", 0o600); err != nil {
			return nil, fmt.Errorf("write webhook secret: %w", err)
		}
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return nil, fmt.Errorf("make hooks directory: %w", err)
	}
	return writeHooks(into, hooks, foreign)
}

func writeHooks(into string, hooks []Hook, foreign map[string]bool) ([]string, error) {
	var written []string
	for _, h := range hooks {
		file := filepath.Join(into, h.Name)
		if foreign[h.Name] {
			if _, err := os.Lstat(file + chainedSuffix); err == nil {
				return written, fmt.Errorf("%w: %s, and another one is kept as %s: remove one of them", ErrForeignHook, file, file+chainedSuffix)
			}
			if err := os.Rename(file, file+chainedSuffix); err != nil {
				return written, fmt.Errorf("keep the present hook: %w", err)
			}
		}
		if err := replaceFile(file, h.Text, 0o755); err != nil {
			return written, fmt.Errorf("write hook: %w", err)
		}
		written = append(written, file)
	}
	return written, nil
}

func isForeign(file string) (bool, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read hook: %w", err)
	}
	return !strings.Contains(string(text), hookMarker), nil
}

// replaceFile writes a file so that whoever runs it sees the old or the new one.
func replaceFile(file, text string, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".kici-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// commonDir is the git directory that linked work trees share.
func commonDir(ctx context.Context, gitDir string) (string, error) {
	out, err := Run(ctx, Cmd{Dir: filepath.Dir(gitDir), Args: []string{"rev-parse", "--git-common-dir"}, Env: []string{"GIT_DIR=" + gitDir}})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	dir := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(gitDir), dir)
	}
	return dir, nil
}

// hooksDir honours core.hooksPath of the repository and of the user. Our own -c (scope "command") turns hooks off and is not meant.
func hooksDir(ctx context.Context, common, path string, bare bool) (string, error) {
	env := []string{"GIT_DIR=" + common}
	if home, err := os.UserHomeDir(); err == nil {
		env = append(env, "GIT_CONFIG_GLOBAL="+filepath.Join(home, ".gitconfig"))
	}
	out, err := Run(ctx, Cmd{Args: []string{"config", "--show-scope", "--type=path", "--get-all", "core.hooksPath"}, Env: env})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	dir := ""
	for line := range strings.Lines(string(out)) {
		if scope, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); scope != "command" {
			dir = value
		}
	}
	switch {
	case dir == "":
		return filepath.Join(common, "hooks"), nil
	case filepath.IsAbs(dir):
		return dir, nil
	case bare:
		return filepath.Join(common, dir), nil
	}
	return filepath.Join(path, dir), nil
}
