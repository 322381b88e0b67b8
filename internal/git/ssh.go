package git

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// openSSH writes the key and the pinned host keys into files that only this user can read and that live as long as the command.
// ssh sees no agent and no configuration of the user or the machine. Without pinned keys the host's key is accepted at first
// sight; from then on Known holds to it.
func (r Remote) openSSH(files keyFiles) (with Cmd, done func(), err error) {
	dir, err := os.MkdirTemp(files.Dir, "kici-ssh-*") // mode 0700
	if err != nil {
		return Cmd{}, nil, fmt.Errorf("keep the ssh key: %w", err)
	}
	done = func() { _ = os.RemoveAll(dir) }
	known, check := files.Known, "accept-new"
	if known == "" {
		known = filepath.Join(dir, "known_hosts")
	}
	key := ""
	if r.SSHKey != "" {
		key = filepath.Join(dir, "key")
		err = os.WriteFile(key, []byte(textFile(r.SSHKey)), 0o600)
	}
	if r.KnownHosts != "" {
		known, check = filepath.Join(dir, "known_hosts"), "yes"
		err = errors.Join(err, os.WriteFile(known, []byte(textFile(r.KnownHosts)), 0o600))
	}
	command, quoteErr := sshCommand(key, known, check)
	if err = errors.Join(err, quoteErr); err != nil {
		done()
		return Cmd{}, nil, fmt.Errorf("keep the ssh key: %w", err)
	}
	return Cmd{Env: []string{"GIT_SSH_COMMAND=" + command, "GIT_SSH_VARIANT=ssh", "SSH_AUTH_SOCK="}}, done, nil
}

// textFile ends every line the way ssh insists on; keys are often pasted without the last newline.
func textFile(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) + "\n"
}

// sshCommand is what git hands to a shell.
func sshCommand(key, known, check string) (string, error) {
	keyOpt, err := sshPath(key)
	knownOpt, err2 := sshPath(known)
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	args := []string{"ssh", "-F", "/dev/null"}
	for _, o := range []string{
		"BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "IdentityFile=" + keyOpt,
		"UserKnownHostsFile=" + knownOpt, "GlobalKnownHostsFile=/dev/null", "StrictHostKeyChecking=" + check,
		"HashKnownHosts=no", "UpdateHostKeys=no", "ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=8",
		"ForwardAgent=no", "ClearAllForwardings=yes", "PreferredAuthentications=publickey", "LogLevel=ERROR",
	} {
		args = append(args, "-o"+o)
	}
	for i := range args {
		args[i] = quote(args[i])
	}
	return strings.Join(args, " "), nil
}

// sshPath writes a path the way ssh's configuration reads one: in double quotes, with its % doubled. "" is no file.
func sshPath(path string) (string, error) {
	if path == "" {
		return "none", nil
	}
	if strings.ContainsAny(path, "\"\n") || strings.Contains(path, "${") || strings.HasPrefix(path, "~") {
		return "", fmt.Errorf("%w: ssh cannot be given the path %q", ErrName, path)
	}
	return `"` + strings.ReplaceAll(filepath.ToSlash(path), "%", "%%") + `"`, nil
}
