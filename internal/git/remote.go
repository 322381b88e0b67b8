package git

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Remote is a repository on another machine and what opens it. The zero fields are not used.
type Remote struct {
	URL        string
	Username   string
	Password   string // for http and https
	SSHKey     string // private key, OpenSSH's form or PEM, without a passphrase
	KnownHosts string // lines of known_hosts that pin the host's keys; "" accepts a host's key at first sight
}

// The errors of a remote that a person must cure; ErrUnreachable and ErrNotFound are the others. Their texts carry git's sentence
// and never a credential.
var (
	ErrDenied  = errors.New("the repository refused the credential")
	ErrHostKey = errors.New("the host's key is not the known one")
)

// keyFiles says where a command for ssh keeps its files.
type keyFiles struct {
	Dir   string // private directory under which each command makes its own; "" is the system's
	Known string // file that remembers keys accepted at first sight; "" forgets them with the command
}

// open returns the configuration and environment that a command needs to reach the remote, and what undoes it.
//
// A password goes to git by a credential helper that reads it from git's own environment and is bound to the host of URL. With
// a credential git follows no redirect at all: wherever it leads was not what the credential was given for. Without one it
// follows the redirect of the first request alone, and to http and https only.
func (r Remote) open(files keyFiles) (Cmd, func(), error) {
	if r.scheme() == "ssh" {
		return r.openSSH(files)
	}
	with := Cmd{Config: []string{"http.followRedirects=initial", "http.lowSpeedLimit=1", "http.lowSpeedTime=120"}}
	user, password := r.login()
	if password == "" {
		return with, func() {}, nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return Cmd{}, nil, fmt.Errorf("%w: repository address: %s", ErrName, Redact(r.URL))
	}
	helper := `!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$KICI_GIT_USERNAME" "$KICI_GIT_PASSWORD"; }; f`
	with.Config[0] = "http.followRedirects=false"
	with.Config = append(with.Config, "credential."+u.Scheme+"://"+u.Host+".helper="+helper)
	with.Env = []string{"KICI_GIT_USERNAME=" + user, "KICI_GIT_PASSWORD=" + password}
	return with, func() {}, nil
}

func (r Remote) scheme() string {
	if localPath(r.URL) != "" {
		return "file"
	}
	if scheme, _, ok := strings.Cut(r.URL, "://"); ok {
		return scheme
	}
	return "ssh" // user@host:path
}

// login returns the credential for http, which may also stand in the address.
func (r Remote) login() (user, password string) {
	u, err := url.Parse(r.URL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") {
		return "", ""
	}
	user, password = r.Username, r.Password
	if u.User != nil && password == "" {
		user = u.User.Username()
		password, _ = u.User.Password()
	}
	if user == "" {
		user = "kici"
	}
	return user, password
}

// localServer is the option that lets fetch and ls-remote read a repository of this machine as a server would give it; nil for others.
func (r Remote) localServer() []string {
	if localPath(r.URL) == "" {
		return nil
	}
	// git drops its settings before it starts upload-pack on a path of this machine. The repository may belong to another
	// user; whoever configured it as a source vouches for it.
	return []string{"--upload-pack=git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true -c uploadpack.allowFilter=true upload-pack"}
}

// explain gives a failure of git its meaning: ErrHostKey, ErrDenied, ErrNotFound or else ErrUnreachable, in git's words and
// without a credential. Errors that are not git's stay what they are.
func (r Remote) explain(err error) error {
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	said := r.sentence(failed)
	switch {
	case containsAny(said, "Host key verification failed", "HOST IDENTIFICATION HAS CHANGED", "host key is known"):
		return fmt.Errorf("%w: %s. If the host has changed its key on purpose, pin the new one: put what \"ssh-keyscan %s\" prints into the source's knownHosts",
			ErrHostKey, said, r.host())
	case containsAny(said, "returned error: 301", "returned error: 302", "returned error: 303", "returned error: 307", "returned error: 308"):
		return fmt.Errorf("%w: %s: the repository has moved, and a credential is not taken along: give the source its new address", ErrUnreachable, said)
	case denied(said):
		return fmt.Errorf("%w: %s", ErrDenied, said)
	case refusesCommit(err):
		return fmt.Errorf("%w: %s", ErrNotFound, said)
	}
	return fmt.Errorf("%w: %s", ErrUnreachable, said)
}

func denied(said string) bool {
	low := strings.ToLower(said)
	return containsAny(low, "authentication failed", "permission denied (", "returned error: 401", "returned error: 403",
		"could not read username", "could not read password", "terminal prompts disabled", "access denied",
		"could not be found or you don't have permission", "load key", "too many authentication failures") ||
		strings.Contains(low, "repository") && strings.Contains(low, "not found")
}

// maxSentence bounds what of git's standard error becomes an error text, in bytes.
const maxSentence = 600

// sentence is git's standard error in one line, without progress, banners of ssh, advice and credentials.
func (r Remote) sentence(failed *Error) string {
	var kept []string
	for line := range strings.SplitSeq(failed.Stderr, "\n") {
		line = strings.TrimRight(line, "\r") // ssh ends lines with both
		line = line[strings.LastIndexByte(line, '\r')+1:]
		line = clean(line, maxSentence)
		switch {
		case line == "" || isProgress(line) || strings.Trim(line, "@ ") == "":
		case containsAny(line, "Please make sure you have the correct access rights", "and the repository exists.",
			"Could not read from remote repository", "IT IS POSSIBLE THAT SOMEONE", "Someone could be eavesdropping",
			"It is also possible that a host key", "Warning: Permanently added", "Please contact your system administrator",
			"The fingerprint for the", "SHA256:", "to get rid of this message", "Host key for", "Offending ", "remove with:",
			"ssh-keygen -f", "Load key \"\""):
		default:
			kept = append(kept, line)
		}
	}
	if len(kept) == 0 {
		kept = []string{failed.Err.Error()}
	}
	return clean(r.scrub(strings.Join(kept, "; ")), maxSentence)
}

// scrub takes the credential out of a text, should a server repeat it.
func (r Remote) scrub(text string) string {
	_, password := r.login()
	for _, secret := range []string{password, r.Password, url.QueryEscape(password), url.PathEscape(password)} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// host is for people.
func (r Remote) host() string {
	if u, err := url.Parse(r.URL); err == nil && u.Hostname() != "" {
		if u.Port() != "" {
			return "-p " + u.Port() + " " + u.Hostname()
		}
		return u.Hostname()
	}
	_, rest, ok := strings.Cut(r.URL, "@")
	if !ok {
		rest = r.URL
	}
	host, _, _ := strings.Cut(rest, ":")
	return host
}
